#!/bin/sh
# An OCI runtime for containerd that is runc or crun, with folders as containerd or as CRI-O names them, by the name of
# the pod: it begins with runc-, crun- or crio-. The driver of cgroups is the kubelet's, whose paths say which it is.
set -eu
known=/run/oci-switch
mkdir -p "$known"
runtime=
bundle=
previous=
for argument; do
    [ "$previous" != --bundle ] || bundle=$argument
    [ ! -f "$known/$argument" ] || runtime=$(cat "$known/$argument")
    previous=$argument
done
if [ -n "$bundle" ] && [ -z "$runtime" ]; then
    # The last argument of `create` is the ID of the container.
    pod=$(sed -n 's/.*"io.kubernetes.cri.sandbox-name":"\([^"]*\)".*/\1/p' "$bundle/config.json")
    path=$(sed -n 's/.*"cgroupsPath":"\([^"]*\)".*/\1/p' "$bundle/config.json")
    case $pod in runc-*) program=runc ;; *) program=crun ;; esac
    case $path in
    *.slice:*)
        program="$program --systemd-cgroup"
        [ "${pod#crio-}" = "$pod" ] || sed -i 's/:cri-containerd:/:crio:/' "$bundle/config.json"
        ;;
    *) [ "${pod#crio-}" = "$pod" ] || sed -i "s|\"cgroupsPath\":\"$path\"|\"cgroupsPath\":\"${path%/*}/crio-${path##*/}\"|" "$bundle/config.json" ;;
    esac
    echo "$program" > "$known/$previous"
    runtime=$program
fi
exec ${runtime:-runc} "$@"
