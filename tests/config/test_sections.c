// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/sections.h"

TEST(every_alias_maps_to_a_key_and_shadows_none)
{
    const struct config_section *s;
    for (size_t i = 0; i < config_num_aliases; i++) {
        bool of_source = !strncmp(config_aliases[i].key, "data.source.", 12);
        if (!config_find(config_aliases[i].key, &s) &&
            !(of_source && config_find_source(config_aliases[i].key)))
            fail_msg("%s is not a key", config_aliases[i].key);
        CHECK(!config_find(config_aliases[i].old_key, &s));
    }
    for (size_t i = 0; i < config_num_ignored; i++) CHECK(!config_find(config_ignored[i].name, &s));
    CHECK(config_find_ignored("compile.backend") && config_find_ignored("quantize.linear.mx.fqns"));
    CHECK(!config_find_ignored("compiler.backend") && !config_find_ignored("compile"));
}

/* Keys of torchtitan v0.2 and of the older fork, by section. */
static const char *const theirs[] = {
    "job.dump_folder",
    "job.description",
    "job.print_config",
    "job.save_config_file",
    "job.custom_config_module",
    "job.use_for_integration_test",
    "profiling.enable_profiling",
    "profiling.save_traces_folder",
    "profiling.profile_freq",
    "profiling.profiler_active",
    "profiling.profiler_warmup",
    "profiling.enable_memory_snapshot",
    "profiling.save_memory_snapshot_folder",
    "metrics.log_freq",
    "metrics.enable_tensorboard",
    "metrics.disable_color_printing",
    "metrics.enable_color_printing",
    "metrics.save_tb_folder",
    "metrics.save_for_all_ranks",
    "metrics.enable_wandb",
    "metrics.rank_0_only",
    "model.name",
    "model.flavor",
    "model.hf_assets_path",
    "model.tokenizer_path",
    "model.converters",
    "model.print_after_conversion",
    "model.norm_type",
    "model.mask_token",
    "model.rope_theta",
    "optimizer.name",
    "optimizer.lr",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.eps",
    "optimizer.weight_decay",
    "optimizer.implementation",
    "optimizer.early_step_in_backward",
    "optimizer.fused",
    "lr_scheduler.warmup_steps",
    "lr_scheduler.total_steps",
    "lr_scheduler.decay_ratio",
    "lr_scheduler.decay_type",
    "lr_scheduler.min_lr_factor",
    "training.dataset",
    "training.dataset_path",
    "training.local_batch_size",
    "training.global_batch_size",
    "training.seq_len",
    "training.max_norm",
    "training.steps",
    "training.enable_cpu_offload",
    "training.dtype",
    "training.mixed_precision_param",
    "training.mixed_precision_reduce",
    "training.gc_freq",
    "training.gc_debug",
    "training.dataloader.num_workers",
    "training.dataloader.pin_memory",
    "training.batch_size",
    "training.mlm_probability",
    "training.warmup_steps",
    "training.vocab_size",
    "training.data_parallel_replicate_degree",
    "training.data_parallel_shard_degree",
    "training.tensor_parallel_degree",
    "training.enable_loss_parallel",
    "training.compile",
    "training.seed",
    "training.shuffle_seed",
    "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree",
    "parallelism.fsdp_reshard_after_forward",
    "parallelism.tensor_parallel_degree",
    "parallelism.disable_loss_parallel",
    "parallelism.enable_async_tensor_parallel",
    "parallelism.pipeline_parallel_degree",
    "parallelism.module_fqns_per_model_part",
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers",
    "parallelism.pipeline_parallel_layers_per_stage",
    "parallelism.pipeline_parallel_schedule",
    "parallelism.pipeline_parallel_schedule_csv",
    "parallelism.pipeline_parallel_microbatch_size",
    "parallelism.pipeline_parallel_expert_parallel_overlap",
    "parallelism.context_parallel_degree",
    "parallelism.context_parallel_load_balancer",
    "parallelism.context_parallel_rotate_method",
    "parallelism.expert_parallel_degree",
    "parallelism.expert_tensor_parallel_degree",
    "parallelism.expert_parallel_comm_backend",
    "experimental.pipeline_parallel_degree",
    "experimental.pipeline_parallel_split_points",
    "experimental.pipeline_parallel_schedule",
    "experimental.pipeline_parallel_microbatches",
    "experimental.enable_async_tensor_parallel",
    "experimental.enable_compiled_autograd",
    "experimental.custom_import",
    "experimental.custom_args_module",
    "checkpoint.enable",
    "checkpoint.enable_checkpoint",
    "checkpoint.enable_ft_dataloader_checkpoints",
    "checkpoint.folder",
    "checkpoint.interval",
    "checkpoint.interval_type",
    "checkpoint.model_weights_only",
    "checkpoint.initial_load_path",
    "checkpoint.initial_load_model_only",
    "checkpoint.initial_load_in_hf",
    "checkpoint.initial_load_in_hf_quantized",
    "checkpoint.last_save_model_only",
    "checkpoint.last_save_in_hf",
    "checkpoint.export_dtype",
    "checkpoint.async_mode",
    "checkpoint.keep_latest_k",
    "checkpoint.load_step",
    "checkpoint.exclude_from_loading",
    "checkpoint.enable_first_step_checkpoint",
    "checkpoint.create_seed_checkpoint",
    "checkpoint.load_only",
    "activation_checkpoint.mode",
    "activation_checkpoint.selective_ac_option",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    "activation_checkpoint.early_stop",
    "activation_checkpoint.memory_budget",
    "activation_checkpoint.visualize_memory_budget_pareto",
    "activation_checkpoint.preserve_rng_state",
    "activation_checkpoint.determinism_check",
    "activation_checkpoint.debug",
    "compile.enable",
    "compile.components",
    "compile.backend",
    "quantize.linear.float8.recipe_name",
    "quantize.grouped_mm.mx.fqns",
    "float8.enable_float8_linear",
    "float8.scaling_type_input",
    "comm.init_timeout_seconds",
    "comm.train_timeout_seconds",
    "comm.trace_buf_size",
    "comm.save_traces_folder",
    "comm.mode",
    "memory_estimation.enable",
    "memory_estimation.enabled",
    "memory_estimation.disable_fake_mode",
    "fault_tolerance.enable",
    "fault_tolerance.process_group",
    "validation.enable",
    "validation.dataset",
    "validation.dataset_path",
    "validation.local_batch_size",
    "validation.seq_len",
    "validation.freq",
    "validation.steps",
    "validation.dataloader.num_workers",
    "debug.seed",
    "debug.deterministic",
    "debug.deterministic_warn_only",
    "debug.moe_force_load_balance"};

TEST(every_key_of_torchtitan_and_its_fork_is_known)
{
    const struct config_section *s;
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        if (!config_find(theirs[i], &s) && !config_find_alias(theirs[i]) &&
            !config_find_ignored(theirs[i]))
            fail_msg("%s is not known", theirs[i]);
}

TEST(suggestions_come_from_all_sections)
{
    char buffer[128];
    CHECK(!strcmp(config_suggest("training.lr", buffer, sizeof buffer), "optimizer.lr"));
    CHECK(!config_suggest("qqqqqqqqqqqqq.zzzzzzzzzzzzzzzzz", buffer, sizeof buffer));
}
