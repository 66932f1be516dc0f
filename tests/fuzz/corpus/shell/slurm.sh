MASTER_ADDR=$(srun --ntasks=1 hostname | head -n 1)
if docker ps; then
    export container_command=docker
else
    exit 1
fi
export CONTAINER_NAME="training_env"
export MODEL_NAME=${MODEL_NAME:-"llama2"}
srun bash -c '
    ${container_command} stop $( ${container_command} ps -q )
    ${container_command} run -d --name $CONTAINER_NAME image tail -f /dev/null
'
MODEL_SIZE=$1
MBS=$2
BATCH_SIZE_PER_NODE=$3
export BS=$(( SLURM_NNODES * BATCH_SIZE_PER_NODE ))
SEQ_LENGTH=$4
TOTAL_ITERS=$5
FSDP=$6
RECOMPUTE=$7
echo 0 | sudo tee /proc/sys/kernel/numa_balancing
srun bash -c '
  ${container_command} exec \
    -e NNODES=$SLURM_NNODES \
    -e MASTER_ADDR='"$MASTER_ADDR"' \
    -e MBS='"$MBS"' \
    -e BS='"$BS"' \
    -e SEQ_LENGTH='"$SEQ_LENGTH"' \
    -e MODEL_SIZE='"$MODEL_SIZE"' \
    -e TOTAL_ITERS='"$TOTAL_ITERS"' \
    -e RECOMPUTE='"$RECOMPUTE"' \
    -e FSDP='"$FSDP"' \
    '"$CONTAINER_NAME"' \
    bash -c "
      echo MBS=\$MBS
      export OMP_NUM_THREADS=4
      TEE_OUTPUT=1 MBS=\$MBS BS=\$BS RECOMPUTE=\$RECOMPUTE TE_FP8=0 FSDP=\$FSDP TP=1 \
      SEQ_LENGTH=\$SEQ_LENGTH bash examples/megatron-${MODEL_NAME}.sh
    "
'
