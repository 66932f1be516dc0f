SAVE=${1:-"checkpoints/llama3_8b_fp8"}
TOKENIZER=${2:-"MOCK"}
CACHE="${PWD}/cache"
DTYPE="fp8"
LAUNCH=(--nproc_per_node 8 --nnodes 1)
MODEL=(
    --num-layers 32 --hidden-size 4096 # sizes
    --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0
    --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --normalization RMSNorm
    --init-method-std 0.0134 --attention-backend fused --apply-layernorm-1p
    --untie-embeddings-and-output-weights --disable-bias-linear --use-mcore-models
)
TRAINING=(
    --micro-batch-size 1 --global-batch-size 128 --train-samples 1953125000
    --lr-decay-samples 1949218748 --lr-warmup-samples 3906252 --lr 0.00015 --min-lr 0.00001
    --decoupled-lr 5.0e-4 --decoupled-min-lr 4.5e-5 --lr-decay-style cosine --clip-grad 1.0
    --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --bf16 --grad-reduce-in-bf16
    --calculate-per-token-loss --manual-gc --exit-duration-in-mins 235
)
EIGHT=()
if [[ "$DTYPE" == "fp8" ]]; then
    EIGHT+=("--fp8-format hybrid" "--fp8-amax-history-len 1024" "--fp8-amax-compute-algo max")
fi
PARALLEL=(--tensor-model-parallel-size 1 --context-parallel-size 2 --sequence-parallel)
MORE=(--use-distributed-optimizer --overlap-grad-reduce)
TRAINING+=("${MORE[@]}")
DATA=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA+=("--mock-data" "--tokenizer-type NullTokenizer" "--vocab-size 128256"
           "--data-cache-path ${CACHE}" "--split '99,1,0'" "--num-workers 1")
else
    DATA+=("--data-path data" "--tokenizer-type HuggingFaceTokenizer"
           "--tokenizer-model $TOKENIZER" "--split '99,1,0'" "--vocab-size 128256")
fi
LOGGING=(
    --log-interval 1 --eval-iters 32 --eval-interval 100 --save-interval 1000 --profile
    --ckpt-format torch_dist --save "$SAVE" --load "$SAVE" --tensorboard-dir "$SAVE/tb"
)
if [ ! -f pretrain_gpt.py ]; then
    echo "pretrain_gpt.py is not here"
    exit 1
fi
torchrun ${LAUNCH[@]} \
    pretrain_gpt.py ${MODEL[@]} ${TRAINING[@]} ${EIGHT[@]} ${PARALLEL[@]} ${DATA[@]} ${LOGGING[@]}
