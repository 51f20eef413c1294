// Records what the original's histograms answer (recorded.json): percentiles, checkpoints, percentiles after a restore.
//
// Put this file as main.go into an empty folder beside a copy of the original's pkg/util/histogram (without its tests and
// mocks), write a go.mod with "module hist", and run: go run . > recorded.json
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"time"

	"hist/histogram"
)

type sample struct {
	Value float64 `json:"value"`
	At    string  `json:"at"`
}
type kase struct {
	Kind        string                           `json:"kind"`
	HalfLife    int64                            `json:"halfLifeSeconds"`
	Samples     []sample                         `json:"samples"`
	Percentiles map[string]float64               `json:"percentiles"`
	Checkpoint  *histogram.HistogramCheckpoint   `json:"checkpoint"`
	Restored    map[string]float64               `json:"restored"`
}

func pct(h histogram.Histogram) map[string]float64 {
	m := map[string]float64{}
	for _, p := range []float64{0, 0.5, 0.6, 0.9, 0.95, 0.98, 1} {
		m[fmt.Sprint(p)] = h.Percentile(p)
	}
	return m
}
func main() {
	r := rand.New(rand.NewSource(7))
	cpu, _ := histogram.NewExponentialHistogramOptions(1024, 0.025, 1.05, 0.0001)
	mem, _ := histogram.NewExponentialHistogramOptions(1<<41, 5*1024*1024, 1.05, 0.0001)
	out := []kase{}
	for i := 0; i < 24; i++ {
		opts, kind, top := cpu, "cpu", 8.0
		if i%2 == 1 {
			opts, kind, top = mem, "memory", 3e9
		}
		half := []time.Duration{12 * time.Hour, 24 * time.Hour, time.Minute, 90 * time.Second}[i%4]
		h := histogram.NewDecayingHistogram(opts, half)
		k := kase{Kind: kind, HalfLife: int64(half / time.Second)}
		t := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
		n := []int{0, 1, 3, 30, 60}[i%5]
		for j := 0; j < n; j++ {
			t = t.Add(time.Duration(r.Intn(600)) * time.Second)
			if j == n/2 && i%3 == 0 {
				t = t.Add(half * 130)
			}
			at := t
			if r.Intn(8) == 0 {
				at = at.Add(-30 * time.Second)
			}
			v := r.Float64() * top
			if r.Intn(10) == 0 {
				v = 0
			}
			if r.Intn(20) == 0 {
				v = 1e13
			}
			h.AddSample(v, 1, at)
			k.Samples = append(k.Samples, sample{v, at.Format(time.RFC3339)})
		}
		k.Percentiles = pct(h)
		if n > 0 {
			k.Checkpoint, _ = h.SaveToCheckpoint()
			h2 := histogram.NewDecayingHistogram(opts, half)
			if err := h2.LoadFromCheckpoint(k.Checkpoint); err != nil {
				panic(err)
			}
			k.Restored = pct(h2)
		}
		out = append(out, k)
	}
	b, _ := json.Marshal(out)
	fmt.Println(string(b))
}
