#!/bin/bash
# Epilog= of slurm.conf: takes away the mounts of jobs that were killed with their daemons. One that lives, of the service or of
# another job, is left alone. It never drains the node.
timeout 60 tmaxfs unmount --dead || logger --tag tmaxfs "a dead mount is left after job $SLURM_JOB_ID"
exit 0
