#!/bin/bash
# Prolog= of slurm.conf, for nodes where the pool is a service: it is there before a job begins, also on a node that has just
# come up. What goes wrong is in the system's log, and never drains the node: the jobs may not need the pool at all.
instance=${TMAXFS_INSTANCE:-tmax}

if ! timeout 60 systemctl start "tmaxfs@$instance.service"; then
  logger --tag tmaxfs "the pool (tmaxfs@$instance) is not mounted yet at the start of job $SLURM_JOB_ID"
fi
exit 0
