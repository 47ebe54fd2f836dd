#!/bin/bash
# Process 1 of a node, in mount and pid namespaces of its own:
#   node_init.sh BASE FOLDER KUBELET NAME PROVIDER_ID
# It builds the node's root from mounts that no process outside sees, then runs containerd and the
# kubelet; when one of them ends, the node ends. SIGKILL from outside ends every process of the
# node, and the mounts go with the last one.
set -eu
base=$1 folder=$2 kubelet=$3 name=$4 provider_id=$5
root=$folder/root

mount --make-rprivate /
mount -t overlay -o "lowerdir=$base,upperdir=$folder/upper,workdir=$folder/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$kubelet" "$root/usr/local/bin/kubelet"
# containerd's overlays need a file system below them that is not an overlay itself.
mount --bind "$folder/containerd" "$root/var/lib/containerd"
mount --bind "$folder/kubelet" "$root/var/lib/kubelet"
mount --bind "$folder/log" "$root/var/log"

cd "$root"
pivot_root . mnt
cd /
# The kubelet and the network plugin want these kernel settings. They belong to the whole machine,
# so each is covered by a file that already holds the wanted value.
for setting in /etc/kernel-settings/*; do
    mount --bind "$setting" "/proc/sys/$(basename "$setting" | tr . /)"
done
# The kubelet counts what is mounted here: a machine of the instance's size.
mount --bind /etc/size/meminfo /proc/meminfo
mount --bind /etc/size/cpu /sys/devices/system/cpu
[ ! -d /sys/devices/system/node ] || mount --bind /etc/size/numa /sys/devices/system/node
umount -l /mnt
mount --make-rshared / # volumes that the kubelet mounts must reach the containers

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin # the criu wrapper comes first
containerd --config /etc/containerd/config.toml >> /var/log/containerd.log 2>&1 &
until ctr version > /dev/null 2>&1; do sleep 0.05; done
kubelet --config /etc/kubelet/config.json --kubeconfig /etc/kubelet/kubeconfig \
    --hostname-override "$name" --cloud-provider external --provider-id "$provider_id" \
    --node-labels "$(cat /etc/kubelet/labels)" \
    --cert-dir /var/lib/kubelet/pki --v 2 >> /var/log/kubelet.log 2>&1 &
wait -n
