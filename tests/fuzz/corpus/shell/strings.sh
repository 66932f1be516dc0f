MODEL_SIZE="${MODEL_SIZE:-70}" TP="${TP:-8}" PP="${PP:-1}" CP="${CP:-1}" MBS="${MBS:-1}"
BS="${BS:-8}"; SEQ_LENGTH="${SEQ_LENGTH:-4096}"; TOTAL_ITERS="${TOTAL_ITERS:-12}"
FSDP="${FSDP:-0}"; RECOMPUTE="${RECOMPUTE:-0}"; SEQ_PARALLEL="${SEQ_PARALLEL:-1}"
TOKENIZER_TYPE="${TOKENIZER_TYPE:-HuggingFaceTokenizer}"
if [ "$TOKENIZER_TYPE" == "Llama2Tokenizer" ]; then
    if [ ! -z ${TOKENIZER_MODEL+x} ]; then
        echo "TOKENIZER_MODEL is not wanted with Llama2Tokenizer"
        exit 1
    fi
    TOKENIZER_MODEL="/tmp/tokenizer.model"
    wget -O "$TOKENIZER_MODEL" https://example.org/tokenizer.model
else
    TOKENIZER_MODEL="${TOKENIZER_MODEL:-NousResearch/Llama-2-7b-chat-hf}"
fi
if [ "$FSDP" -eq 1 ] && [ "$TP" -gt 1 ]; then TP=1; fi
case $MODEL_SIZE in
    7) HIDDEN=4096 FFN=11008 LAYERS=32 HEADS=32 KV=32 ;;
    13) HIDDEN=5120 FFN=13824 LAYERS=40 HEADS=40 KV=40 ;;
    70) HIDDEN=8192 FFN=28672 LAYERS=80 HEADS=64 KV=8 ;;
    *) echo "Model size not supported."; exit 1 ;;
esac
ARGS="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP
    --context-parallel-size $CP --num-layers $LAYERS --hidden-size $HIDDEN
    --ffn-hidden-size $FFN --num-attention-heads $HEADS --seq-length $SEQ_LENGTH
    --max-position-embeddings 32000 --untie-embeddings-and-output-weights
    --position-embedding-type rope --no-position-embedding --swiglu --disable-bias-linear
    --init-method-std 0.02 --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm
    --micro-batch-size $MBS --global-batch-size $BS --train-iters $TOTAL_ITERS
    --no-async-tensor-model-parallel-allreduce --bf16 --no-masked-softmax-fusion
    --group-query-attention --num-query-groups $KV --no-gradient-accumulation-fusion
    --distributed-backend nccl --distributed-timeout-minutes 120 --overlap-grad-reduce
    --lr 1e-4 --min-lr 1e-5 --lr-decay-iters 320000 --lr-decay-style cosine
    --weight-decay 1.0e-1 --clip-grad 1.0 --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95
    --tokenizer-type ${TOKENIZER_TYPE} --tokenizer-model ${TOKENIZER_MODEL}
    --split 99990,8,2 --dataloader-type cyclic --log-interval 1 --eval-iters -1"
[ "$RECOMPUTE" -eq 1 ] && ARGS+=" --recompute-num-layers $LAYERS --recompute-granularity full
    --recompute-method block"
if [ -z ${DATA_PATH+x} ]; then ARGS="$ARGS --mock-data"; else ARGS="$ARGS --data-path $DATA_PATH"; fi
if [ "$FSDP" -eq 1 ]; then
    ARGS="$ARGS --use-torch-fsdp2"; SEQ_PARALLEL=0
else
    ARGS="$ARGS --use-distributed-optimizer --overlap-param-gather"
fi
[ "$SEQ_PARALLEL" -eq 1 ] && ARGS="$ARGS --sequence-parallel"
torchrun --nproc_per_node ${GPUS_PER_NODE:-8} --nnodes ${NNODES:-1} pretrain_gpt.py $ARGS 2>&1 | tee log
