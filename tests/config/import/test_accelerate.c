// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"

/* A script like frontier-guide's, and the line of its train.py that names the data. */
static const char script[] = "#!/bin/bash\n"
                             "#SBATCH --nodes=16\n"
                             "export GPUS_PER_NODE=8\n"
                             "ip=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
                             "export LAUNCHER=\"accelerate launch \\\n"
                             "  --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) \\\n"
                             "  --num_machines $SLURM_NNODES --main_process_ip $ip \\\n"
                             "  --machine_rank $SLURM_NODEID --mixed-precision=bf16 --use_fsdp \\\n"
                             "  --fsdp_sharding_strategy 1 \\\n"
                             "  \"\n"
                             "ARGS=\"--model_name_or_path \"meta-llama/Meta-Llama-3.1-8B\" \\\n"
                             "  --block_size 4096 --per_device_train_batch_size 4 \\\n"
                             "  --output_dir out/llama --num_train_epochs 20 \\\n"
                             "  --checkpointing_steps 100 \\\n"
                             "  \"\n"
                             "srun $LAUNCHER /scratch/guide/train.py $ARGS EXTRA\n";
static const char program[] =
    "data = load_dataset(\"Salesforce/wikitext\", 'wikitext-103-v1', x=1)\n";

static enum status convert(struct import *im, const char *extra, const char *setting)
{
    const char *folder = test_folder();
    const char *path = test_path(folder, "train.sh"), *python = test_path(folder, "train.py");
    char *text = imported_replace(script, "EXTRA", extra);
    const char *words[] = {setting};
    CHECK_STATUS(OK, file_write(path, text, strlen(text)));
    CHECK_STATUS(OK, file_write(python, program, strlen(program)));
    enum status st = import_script(im, text, strlen(text), path, words, setting != NULL);
    free(text);
    return st;
}

TEST(a_script_of_accelerate_becomes_an_fsdp_run)
{
    struct import im = {0};
    const char *const expected[] = {"model.name=\"llama3.1\"",
                                    "model.flavor=\"8B\"",
                                    "training.steps=500",
                                    "training.seq_len=4096",
                                    "training.local_batch_size=4",
                                    "training.global_batch_size=512",
                                    "training.max_norm=0.0",
                                    "parallelism.data_parallel_shard_degree=-1",
                                    "parallelism.fsdp_reshard_after_forward=\"always\"",
                                    "optimizer.lr=0.0001",
                                    "optimizer.beta2=0.999",
                                    "optimizer.weight_decay=0.0",
                                    "lr_scheduler.formula=\"megatron\"",
                                    "lr_scheduler.decay_type=\"cosine\"",
                                    "lr_scheduler.warmup_steps=100",
                                    "activation_checkpoint.mode=\"full\"",
                                    "checkpoint.interval=100",
                                    "job.dump_folder=\"out/llama\"",
                                    "data.tokenizer=\"hf://meta-llama/Meta-Llama-3.1-8B\"",
                                    "validation.freq=100",
                                    "validation.local_batch_size=8",
                                    NULL};
    CHECK_STATUS(OK, convert(&im, "", "training.steps=500"));
    CHECK(im.num_ranks == 128 && im.num_sources == 1);
    CHECK(!strcmp(im.sources[0].path,
                  "hf://datasets/Salesforce/wikitext/wikitext-103-v1/train-*.parquet"));
    CHECK_STATUS(OK, import_check_refusals(&im));
    imported_check(&im, expected);
    import_release(&im);
}

TEST(accelerate_flags_follow_the_schedules_of_hugging_face)
{
    static const struct {
        const char *flags, *expected[4];
    } cases[] = {
        {"--max_train_steps 300 --lr_scheduler_type constant --gradient_accumulation_steps 2",
         {"lr_scheduler.warmup_steps=0", "lr_scheduler.decay_ratio=0.0",
          "training.global_batch_size=1024"}},
        {"--max_train_steps 300 --lr_scheduler_type polynomial --learning_rate 2e-7",
         {"lr_scheduler.min_lr_factor=0.5", "lr_scheduler.decay_type=\"linear\""}},
        {"--max_train_steps 300 --fsdp_sharding_strategy 4 --use_pretrained_weights",
         {"parallelism.data_parallel_replicate_degree=16",
          "checkpoint.initial_load_path=\"hf://meta-llama/Meta-Llama-3.1-8B\"",
          "checkpoint.initial_load_model_only=true"}},
        {"--max_train_steps 300 --fsdp_sharding_strategy SHARD_GRAD_OP --seed 7",
         {"parallelism.fsdp_reshard_after_forward=\"never\"", "debug.seed=7"}},
        {"--max_train_steps 300 --fsdp_sharding_strategy NO_SHARD",
         {"parallelism.data_parallel_replicate_degree=128",
          "parallelism.data_parallel_shard_degree=1"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        CHECK_STATUS(OK, convert(&im, cases[i].flags, NULL));
        CHECK_STATUS(OK, import_check_refusals(&im));
        imported_check(&im, cases[i].expected);
        import_release(&im);
    }
}

TEST(accelerate_flags_are_rejected_with_a_clear_message)
{
    static const char *const cases[][2] = {
        {"", "add training.steps=N"},
        {"--max_train_steps 9 --model_name_or_path gpt2", "a Llama 2 or 3 of the Hub"},
        {"--max_train_steps 9 --lr_scheduler_type square", "cosine, linear, polynomial"},
        {"--max_train_steps 9 --fsdp_sharding_strategy 9", "1 to 5, or FULL_SHARD"},
        {"--max_train_steps 9 --learning_rte 1", "did you mean --learning_rate?"},
        {"--max_train_steps", "--max_train_steps requires a value"},
        {"--max_train_steps 9 --num_machines 0 --fsdp_sharding_strategy 4",
         "set it on the command line: SLURM_NNODES=VALUE"},
        {"--max_train_steps 9 --per_device_train_batch_size 0", "must be at least 1"},
        {"--max_train_steps 9 --gradient_accumulation_steps 1125899906842624 --num_processes "
         "1048576",
         "x 1125899906842624 on 1048576 ranks: too large"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        enum status st = convert(&im, cases[i][0], NULL);
        if (st != STATUS_CONFIG || !strstr(status_message(), cases[i][1]))
            fail_msg("%s gave %s", cases[i][0], st ? status_message() : "no error");
        import_release(&im);
    }
    struct import im = {0};
    CHECK_STATUS(OK, convert(&im, "--max_train_steps 9 --mixed_precision fp16", NULL));
    CHECK(imported_has_note(&im, IMPORT_UNSUPPORTED, "--mixed_precision", "only bf16"));
    import_release(&im);
}
