#!/bin/bash
# TaskProlog= of slurm.conf, for nodes where the pool is a service: what it prints as "export" is in the environment of every task.
echo export TMAX=/tmax
echo export SWERL_APPTAINER_SIF_DIR=/tmax/pool
