#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The variables, defaults and flags of ROCm's train_llama3.sh, in a layout of our own.
export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-0}
HCA_LIST=$(rdma link -j 2>/dev/null | python3 -c "import json, sys
try:
    print(*[l[\"ifname\"] for l in json.load(sys.stdin)][:8], sep=',') # isn't run
except Exception:
    pass") || HCA_LIST=""
export NCCL_IB_HCA=${NCCL_IB_HCA:-$HCA_LIST}

for ARGUMENT in "$@"
do
    KEY=$(echo $ARGUMENT | cut -f1 -d=)
    LENGTH=${#KEY}
    export "$KEY"="${ARGUMENT:$LENGTH+1}"
done

STAMP=$(date +"%Y-%m-%d_%H-%M-%S")
GPUS_PER_NODE=`python3 -c "import torch; print(torch.cuda.device_count())"`
NNODES="${NNODES:-1}"
WORLD=$(($GPUS_PER_NODE*$NNODES))
if [ "${NNODES:-1}" -gt 1 ]; then
    export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-ens51np0}"
else
    echo "one node"
fi

NO_TRAINING="${NO_TRAINING:-0}"; TEE_OUTPUT="${TEE_OUTPUT:-1}"
MODEL_SIZE="${MODEL_SIZE:-70}"
TP="${TP:-8}"
PP="${PP:-1}"
CP="${CP:-1}"
MBS="${MBS:-1}"
BS="${BS:-8}"
SEQ_LENGTH="${SEQ_LENGTH:-2048}"
TOTAL_ITERS="${TOTAL_ITERS:-12}"
SEQ_PARALLEL="${SEQ_PARALLEL:-1}"
GEMM_TUNING="${GEMM_TUNING:-1}"           # 1: a library times its products
[ "$GEMM_TUNING" -eq 1 ] && export TE_HIPBLASLT_TUNING_RUN_COUNT=10
TE_FP8="${TE_FP8:-0}"                     # 1: products of eight bits
TE_FP8_RECIPE="${TE_FP8_RECIPE:-delayed}"
TE_FP4="${TE_FP4:-0}"
GRADIENT_ACCUMULATION_FUSION="${GRADIENT_ACCUMULATION_FUSION:-1}"
OPTIMIZER="${OPTIMIZER:-adam}"
FSDP="${FSDP:-0}"
MEGATRON_FSDP="${MEGATRON_FSDP:-0}"
ENABLE_HSDP="${ENABLE_HSDP:-0}"
HSDP_NUM_REPLICAS="${HSDP_NUM_REPLICAS:-2}"
RECOMPUTE="${RECOMPUTE:-0}"
TOKENIZER_TYPE="${TOKENIZER_TYPE:-HuggingFaceTokenizer}"
TOKENIZER_MODEL="${TOKENIZER_MODEL:-NousResearch/Meta-Llama-3-8B}"
EVAL_ITERS="${EVAL_ITERS:-'-1'}"
EVAL_INTERVAL="${EVAL_INTERVAL:-5000}"
SAVE_INTERVAL="${SAVE_INTERVAL:-5000}"
CKPT_FORMAT="${CKPT_FORMAT:-torch}"

if [ "$TE_FP8" -eq 1 ] && [ "$TE_FP4" -eq 1 ]; then
    echo "FP8 and FP4 exclude each other"
    exit 1
fi
if [ "$FSDP" -eq 1 ] || [ "$MEGATRON_FSDP" -eq 1 ]; then
    unset CUDA_DEVICE_MAX_CONNECTIONS
    GRADIENT_ACCUMULATION_FUSION=0
    if [ "$TP" -gt 1 ]; then
        TP=1
    fi
fi
if [ "$ENABLE_HSDP" -eq 1 ]; then
    if [ "$MEGATRON_FSDP" -ne 1 ]; then
        echo "HSDP needs MEGATRON_FSDP=1"
        exit 1
    fi
fi
if [ "$TE_FP8" -eq 1 ]; then
    case "$TE_FP8_RECIPE" in
        delayed)              TAG="fp8" ;;
        tensorwise | current) TAG="fp8_tensorwise" ;;
        *)                    TAG="fp8_${TE_FP8_RECIPE}" ;;
    esac
else
    TAG="bf16"
fi
LOG_DIR="${LOG_DIR:-experiment/${MODEL_SIZE}B/${TAG}/${STAMP}}"
LOG="${LOG_DIR}/output.log"
mkdir -p $LOG_DIR
[ "$SEQ_LENGTH" -le 8192 ] && WORKERS=8 || WORKERS=24

if [[ $MODEL_SIZE -eq 8 ]]; then
    HIDDEN_SIZE=4096; FFN_HIDDEN_SIZE=14336; NUM_LAYERS=32; NUM_HEADS=32; NUM_KV_HEADS=8
elif [[ $MODEL_SIZE -eq 70 ]]; then
    HIDDEN_SIZE=8192; FFN_HIDDEN_SIZE=28672; NUM_LAYERS=80; NUM_HEADS=64; NUM_KV_HEADS=8
else
    echo "Model size not supported."
    exit 1
fi
GROUP_SIZE=$(( ${NUM_HEADS} / ${NUM_KV_HEADS} ))
NUM_GROUPS=$(( ${NUM_HEADS} / ${GROUP_SIZE} ))

GPT_ARGS="
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --context-parallel-size ${CP} \
    --num-layers $NUM_LAYERS --hidden-size $HIDDEN_SIZE \
    --ffn-hidden-size $FFN_HIDDEN_SIZE --num-attention-heads $NUM_HEADS \
    --seq-length $SEQ_LENGTH --max-position-embeddings 131072 \
    --untie-embeddings-and-output-weights \
    --position-embedding-type rope --no-position-embedding \
    --swiglu --use-te-activation-func --no-bias-swiglu-fusion \
    --disable-bias-linear --init-method-std 0.02 \
    --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm \
    --micro-batch-size $MBS --global-batch-size $BS --train-iters $TOTAL_ITERS \
    --bf16 --no-masked-softmax-fusion \
"
if [ "$RECOMPUTE" -eq 1 ]; then
    GPT_ARGS="$GPT_ARGS --recompute-num-layers $NUM_LAYERS \
        --recompute-granularity full --recompute-method block \
        "
fi
if [ "$GRADIENT_ACCUMULATION_FUSION" -eq 0 ]; then
    GPT_ARGS="$GPT_ARGS --no-gradient-accumulation-fusion"
fi
GPT_ARGS="$GPT_ARGS --grad-reduce-in-bf16 --fused-single-qkv-rope"

TRAIN_ARGS="--lr 1e-4 --min-lr 1e-5 --lr-decay-iters 320000 --lr-decay-style cosine \
    --weight-decay 1.0e-1 --clip-grad 1.0 \
"
if [ "$OPTIMIZER" == "adam" ]; then
    TRAIN_ARGS="$TRAIN_ARGS --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 \
        "
else
    TRAIN_ARGS="$TRAIN_ARGS --optimizer sgd"
fi

DATA_ARGS="
    --tokenizer-type ${TOKENIZER_TYPE} --tokenizer-model ${TOKENIZER_MODEL} \
    --dataloader-type cyclic --save-interval 200000 --tensorboard-dir $LOG_DIR \
    --log-interval 1 --eval-interval 320000 --eval-iters 10 --num-workers $WORKERS \
"
if [ -z ${DATA_PATH+x} ]; then
    DATA_ARGS="$DATA_ARGS --mock-data"
else
    DATA_ARGS="$DATA_ARGS --data-path $DATA_PATH"
fi
OUTPUT_ARGS="
    --log-interval 1 --log-throughput --no-save-optim --no-save-rng --eval-iters $EVAL_ITERS
"
if [ -n "$SAVE_CKPT_PATH" ]; then
    OUTPUT_ARGS="$OUTPUT_ARGS --save-interval $SAVE_INTERVAL --eval-interval $EVAL_INTERVAL \
        --ckpt-format $CKPT_FORMAT --save $SAVE_CKPT_PATH
    "
fi
LOAD_ARGS=""
if [ -n "$LOAD_CKPT_PATH" ]; then
    LOAD_ARGS="--exit-on-missing-checkpoint --no-load-optim --no-load-rng \
        --use-checkpoint-args --load ${LOAD_CKPT_PATH}"
fi
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank ${NODE_RANK:-0} \
    --master_addr ${MASTER_ADDR:-localhost} --master_port 6000 \
"
EXTRA_ARGS="
    --group-query-attention --num-query-groups $NUM_GROUPS --distributed-backend nccl \
    --distributed-timeout-minutes 120 --overlap-grad-reduce --rerun-mode disabled \
"
if [ "$FSDP" -eq 1 ]; then
    EXTRA_ARGS="$EXTRA_ARGS --use-torch-fsdp2"
    SEQ_PARALLEL=0
else
    if [ "$OPTIMIZER" == "adam" ]; then
        EXTRA_ARGS="$EXTRA_ARGS --use-distributed-optimizer --overlap-param-gather"
    fi
fi
if [ "$SEQ_PARALLEL" -eq 1 ]; then
    EXTRA_ARGS="$EXTRA_ARGS --sequence-parallel"
fi
if [ "$TE_FP8" -eq 1 ]; then
    EXTRA_ARGS="$EXTRA_ARGS --transformer-impl=transformer_engine \
"
    if [ "$TE_FP8_RECIPE" == "delayed" ]; then
        EXTRA_ARGS="$EXTRA_ARGS --fp8-recipe=delayed --fp8-format=hybrid --fp8-margin=0 \
            --fp8-interval=1 --fp8-amax-history-len=1024 --fp8-amax-compute-algo=max \
            --attention-softmax-in-fp32 \
        "
    elif [ "$TE_FP8_RECIPE" == "mxfp8" ]; then
        EXTRA_ARGS="$EXTRA_ARGS --fp8-recipe=mxfp8 --fp8-format=e4m3"
    elif [ "$TE_FP8_RECIPE" == "tensorwise" ]; then
        EXTRA_ARGS="$EXTRA_ARGS --fp8-recipe=tensorwise --fp8-format=hybrid"
    else
        echo "$TE_FP8_RECIPE is not supported"
        exit
    fi
fi
if [ "$MEGATRON_FSDP" -eq 1 ]; then
    EXTRA_ARGS="$EXTRA_ARGS --use-megatron-fsdp --ckpt-format fsdp_dtensor \
        --data-parallel-sharding-strategy optim_grads_params --fsdp-double-buffer"
    if [ "$ENABLE_HSDP" -eq 1 ]; then
        EXTRA_ARGS="$EXTRA_ARGS --num-distributed-optimizer-instances $HSDP_NUM_REPLICAS"
    fi
fi

run_cmd="
    torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
        $GPT_ARGS \
        $DATA_ARGS \
        $OUTPUT_ARGS \
        $EXTRA_ARGS \
        $TRAIN_ARGS \
        $LOAD_ARGS
"
if [ "$TEE_OUTPUT" -eq 0 ]; then
    run_cmd="$run_cmd >& $LOG"
else
    run_cmd="$run_cmd |& tee $LOG"
fi
if [ "$NO_TRAINING" -eq 0 ]; then
    set -o pipefail
    eval $run_cmd
    RC=$?
fi

echo 'import sys
lines = [float(a) for a in open(sys.argv[1]).readlines()[2:-1]]
print(sum(lines) / len(lines))' > mean.py
grep -Eo 'throughput per GPU [^|]*' $LOG | sed -E 's/.*: ([0-9\.]+).*/\1/' > values.txt
TGS=$(awk -v bs="$BS" -v ws="$WORLD" 'BEGIN {printf "%.6f", bs / ws}')
echo "tokens/GPU/s: $TGS" |& tee -a $LOG
exit $RC
