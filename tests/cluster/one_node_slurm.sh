#!/usr/bin/env bash
# Slurm on this machine alone, from Debian's packages slurm-wlm and munge; as root. Jobs of the partition `urgent` pre-empt those of `plain`.
#   tests/cluster/one_node_slurm.sh start DIR    then: export SLURM_CONF=DIR/slurm.conf
#   tests/cluster/one_node_slurm.sh stop DIR
set -euo pipefail
usage="usage: one_node_slurm.sh start|stop DIR"
action=${1:?$usage} dir=$(realpath -m "${2:?$usage}") node=$(hostname -s)
if [ "$action" = stop ]; then
  for daemon in slurmd slurmctld munged; do kill "$(cat "$dir/$daemon.pid")"; done
  exit
fi
mkdir -p -m 700 "$dir" "$dir/state" "$dir/spool"
test -f "$dir/munge.key" || head -c 1024 /dev/urandom > "$dir/munge.key"
chmod 600 "$dir/munge.key"
cat > "$dir/slurm.conf" << END
ClusterName=trial
SlurmctldHost=$node(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=60
ReturnToService=2
MpiDefault=none
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(awk '/MemTotal/ {print int($2 / 2048)}' /proc/meminfo)
PartitionName=plain Nodes=ALL PriorityTier=1 MaxTime=INFINITE Default=YES
PartitionName=urgent Nodes=ALL PriorityTier=2 MaxTime=INFINITE PreemptMode=OFF
END
munged --force --key-file "$dir/munge.key" --socket "$dir/munge.socket" --pid-file "$dir/munged.pid" --log-file "$dir/munged.log" --seed-file "$dir/munge.seed"
export SLURM_CONF=$dir/slurm.conf
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF"
for _ in $(seq 60); do
  if sinfo --noheader --format %T 2> /dev/null | grep -q idle; then echo "export SLURM_CONF=$SLURM_CONF" && exit; fi
  sleep 1
done
echo "no node is idle; see $dir/slurmctld.log and $dir/slurmd.log" >&2
exit 1
