/** A Slurm cluster of one node in a booted system: controller, node and authentication. */

import type { BootedSystem } from './systemd.js';

const CONFIGURATION = `
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
# By the tree of processes. By cgroups needs a hierarchy of one's own, which a container on a host of the old ones does not have;
# what that does to a mount is tested by test/end-to-end/dead-mounts.test.ts.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
# Not those of a Slurm of this machine: the network is shared with it.
SlurmctldPort=16817
SlurmdPort=16818
ReturnToService=2
KillWait=5
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
Include /etc/slurm/more.conf
`;

/** Returns once the node takes jobs. Throws with the node's log where it does not come up. */
export async function startSlurm({ run }: BootedSystem): Promise<void> {
  const { exitCode, stdout, stderr } = await run(`
    mkdir -p /var/spool/slurmctld /var/spool/slurmd /var/log/slurm
    chown slurm /var/spool/slurmctld /var/log/slurm
    cat > /etc/slurm/slurm.conf <<END${CONFIGURATION}END
    echo MinJobAge=300 > /etc/slurm/more.conf
    echo CgroupPlugin=disabled > /etc/slurm/cgroup.conf
    systemctl start munge slurmctld slurmd
    for attempt in $(seq 60); do
      sinfo --noheader --states idle | grep -q . && exit
      sleep 0.5
    done
    sinfo; cat /var/log/slurm/slurmd.log; exit 1`);
  if (exitCode !== 0) throw new Error(`Slurm did not come up: ${stdout}${stderr}`);
}
