// Records which CPUs the original gives in random situations, one JSON object a line, for test_original_results.py.
//
// Copy this file into pkg/scheduler/plugins/nodenumaresource of the original's source, as record_test.go, and run
//
//	go test ./pkg/scheduler/plugins/nodenumaresource/ -count=1 -run TestRecord > original_results.json
package nodenumaresource

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"sort"
	"testing"

	schedulingconfig "github.com/koordinator-sh/koordinator/pkg/scheduler/apis/config"
	"github.com/koordinator-sh/koordinator/pkg/util/cpuset"
)

type Case struct {
	Shape     [5]int `json:"shape"`
	Available string `json:"available"`
	Preferred string `json:"preferred,omitempty"`
	Cores     string `json:"held_by_core,omitempty"`
	Nodes     string `json:"held_by_numa_node,omitempty"`
	Count     int    `json:"count"`
	Bind      string `json:"bind"`
	Exclusive string `json:"exclusive"`
	Strategy  string `json:"strategy"`
	Taken     string `json:"taken"`
	Error     string `json:"error,omitempty"`
}

func shape(sockets, nodes, cores, threads int, interleaved bool) [][4]int {
	var result [][4]int
	total := sockets * nodes * cores
	node, core, cpu := 0, 0, 0
	for s := 0; s < sockets; s++ {
		for n := 0; n < nodes; n++ {
			for c := 0; c < cores; c++ {
				for t := 0; t < threads; t++ {
					id := cpu
					if interleaved {
						id = core + t*total
					}
					result = append(result, [4]int{id, core, node, s})
					cpu++
				}
				core++
			}
			node++
		}
	}
	sort.Slice(result, func(i, j int) bool { return result[i][0] < result[j][0] })
	return result
}

func TestRecord(t *testing.T) {
	const count = 400
	random := rand.New(rand.NewSource(7))
	shapes := [][4]int{{1, 1, 4, 2}, {2, 1, 4, 2}, {2, 2, 4, 2}, {2, 2, 2, 2}, {1, 2, 4, 1}, {2, 1, 6, 1}, {1, 4, 2, 2}, {4, 1, 3, 2}, {1, 2, 2, 4}, {2, 1, 16, 2}}
	binds := []string{"FullPCPUs", "SpreadByPCPUs", ""}
	exclusives := []string{"None", "PCPULevel", "NUMANodeLevel"}
	strategies := []string{"MostAllocated", "LeastAllocated"}
	var cases []Case
	for i := 0; i < count; i++ {
		sh := shapes[random.Intn(len(shapes))]
		interleaved := random.Intn(2)
		cpus := shape(sh[0], sh[1], sh[2], sh[3], interleaved == 1)
		builder := NewCPUTopologyBuilder()
		for _, c := range cpus {
			builder.AddCPUInfo(c[3], c[2], c[1], c[0])
		}
		topology := builder.Result()
		held := NewCPUDetails()
		density := random.Float64() * 0.8
		var byCore, byNode, preferred []int
		ids := topology.CPUDetails.CPUs().ToSlice()
		for _, id := range ids {
			if random.Float64() >= density {
				if random.Float64() < 0.15 {
					preferred = append(preferred, id)
				}
				continue
			}
			info := topology.CPUDetails[id]
			info.RefCount = 1
			switch random.Intn(6) {
			case 0:
				info.ExclusivePolicy = "PCPULevel"
				byCore = append(byCore, id)
			case 1:
				info.ExclusivePolicy = "NUMANodeLevel"
				byNode = append(byNode, id)
			}
			held[id] = info
		}
		if random.Intn(3) > 0 {
			preferred = nil
		}
		available := topology.CPUDetails.CPUs().Difference(held.CPUs())
		n := 1 + random.Intn(available.Size()+1)
		if random.Intn(2) == 0 {
			n = n / sh[3] * sh[3]
			if n == 0 {
				n = sh[3]
			}
		}
		if random.Intn(2) == 0 {
			n = 1 + random.Intn(8)
		}
		one := Case{
			Shape: [5]int{sh[0], sh[1], sh[2], sh[3], interleaved}, Available: available.String(), Preferred: cpuset.NewCPUSet(preferred...).String(),
			Cores: cpuset.NewCPUSet(byCore...).String(), Nodes: cpuset.NewCPUSet(byNode...).String(), Count: n,
			Bind: binds[random.Intn(3)], Exclusive: exclusives[random.Intn(3)], Strategy: strategies[random.Intn(2)],
		}
		result, err := takePreferredCPUs(topology, 1, available, cpuset.NewCPUSet(preferred...), held, n,
			schedulingconfig.CPUBindPolicy(one.Bind), schedulingconfig.CPUExclusivePolicy(one.Exclusive), schedulingconfig.NUMAAllocateStrategy(one.Strategy))
		one.Taken = result.String()
		if err != nil {
			one.Error = err.Error()
			one.Taken = ""
		}
		cases = append(cases, one)
	}
	fmt.Println("[")
	for i, one := range cases {
		line, _ := json.Marshal(one)
		fmt.Print(string(line))
		if i < len(cases)-1 {
			fmt.Print(",")
		}
		fmt.Println()
	}
	fmt.Println("]")
}
