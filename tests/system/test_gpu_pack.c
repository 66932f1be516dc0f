/* test_gpu_pack.c -- tools/gpu_pack and tools/gpu, over the emulated programs with a tiny model
 * (LLAMERO_GPU and LLAMERO_GPU_CHECK).  bench times more steps than its limit allows. */
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "test.h"

static const char environment[] =
    "export XZ_OPT=-0 MAX_MIB=60 MEGABYTES=1 PYTHON=no-python\n"
    "export SETTINGS='model.dim=32 model.n_heads=4 model.n_kv_heads=2 model.ffn_hidden=48\n"
    "model.n_layers=1 model.vocab_size=264 training.seq_len=32 training.local_batch_size=1\n"
    "training.global_batch_size=1 training.steps=1'\n";

/* Runs a shell script whose $1 is the folder, $2 and $3 the programs. */
static int shell(const char *script, const char *folder, struct text *out, struct text *err)
{
    const char *program = getenv("LLAMERO_GPU"), *check = getenv("LLAMERO_GPU_CHECK");
    struct text all = {0};
    if (!program || !check) skip();
    text_addf(&all, "%s%s", environment, script);
    const char *argv[] = {"sh", "-c", all.data, "sh", folder, program, check, NULL};
    int code = test_run(argv, out, err);
    text_release(&all);
    return code;
}

static struct json *read_json(const char *path)
{
    struct text file = {0};
    struct json *v;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &file));
    CHECK_STATUS(OK, json_parse(file.data, file.len, path, &v));
    text_release(&file);
    return v;
}

/* Whether the summary has lines that begin with these, in this order. */
static bool has_lines(const struct text *summary, const char *const *begins)
{
    const char *at = summary->data;
    for (; *begins && at; begins++)
        if ((at = strstr(at, *begins))) at += strlen(*begins);
    return at;
}
#define HAS_LINES(summary, ...) has_lines(summary, (const char *const[]){__VA_ARGS__, NULL})

static void check_order(const char *folder)
{
    struct text out = {0};
    CHECK(shell("cd \"$1\" && SCALE=5 sh pack/one.sh -t 600 results generate torch-1b step-1b bits "
                "training operations",
                folder, &out, NULL) == 0);
    bool in_order = HAS_LINES(
        &out, "\nok      operations", "\nok      training", "\nok      bits", "\nok      step-1b",
        "\nskipped torch-1b: PyTorch not found", "\nok      generate",
        "96 tokens and log-probabilities differ from those of the CPU by at most ",
        "\n5 passed, 0 failed, 1 skipped");
    if (!in_order) print_error("%s\n", out.data);
    CHECK(in_order);
    CHECK(shell("cd \"$1\" && mkdir all && tar -xf results/results.tar.xz -C all && "
                "grep -q '0 mismatches' all/operations.log && cmp results/summary.txt "
                "results.logs/summary.txt",
                folder, NULL, NULL) == 0);
    text_release(&out);
}

static void check_kill(const char *folder)
{
    struct text out = {0};
    CHECK(shell("cd \"$1\" && SCALE=0.2 ROUNDS=1000 sh pack/one.sh -t 60 killed bench-1b", folder,
                &out, NULL) == 1);
    CHECK(HAS_LINES(&out, "\nFAILED  bench-1b (", "stopped at its limit of 7 s", "\nbench-1b ",
                    "complete: false", "\n0 passed, 1 failed, 0 skipped"));
    CHECK(shell("cd \"$1\" && tar -xf killed/results.tar.xz ./bench-1b.json", folder, NULL, NULL) ==
          0);
    struct json *bench = read_json(test_path(folder, "bench-1b.json"));
    CHECK(json_count(json_get(json_get(bench, "step"), "seconds")) >= 1);
    CHECK(json_number(json_get(json_get(bench, "step"), "tokens")) == 32);
    CHECK(json_is_bool(json_get(bench, "complete")) && !json_true(json_get(bench, "complete")));
    json_free(bench);
    text_release(&out);
}

static void check_budget(const char *folder)
{
    struct text out = {0};
    double begin = clock_monotonic_s();
    (void)shell("cd \"$1\" && sh pack/one.sh -t 5 short", folder, &out, NULL);
    CHECK(clock_monotonic_s() - begin < 30); /* 5, on cores that are free */
    CHECK(HAS_LINES(&out, "\nskipped step-8b: takes up to 50 s, ", "\nskipped resume",
                    "\nskipped bench-1b: takes up to 35 s, ", "\nskipped bench-8b: takes up to ",
                    "\nskipped torch-1b: PyTorch not found", "\nskipped curve"));
    text_release(&out);
}

TEST(a_gpu_pack_runs_its_parts_in_order_and_loses_nothing_that_was_measured)
{
    const char *folder = test_folder();
    struct text out = {0};
    if (TEST_SLOWED) skip(); /* the limits are for programs at full speed */
    CHECK(shell("tools/gpu_pack \"$2\" \"$3\" \"$1/pack\"", folder, &out, NULL) == 0);
    CHECK(strstr(out.data, "bin/llamero") && strstr(out.data, "lib/libdnnl"));
    CHECK(!strstr(out.data, "libc.so") && !strstr(out.data, "libstdc++"));
    text_release(&out);
    check_order(folder);
    check_kill(folder);
    check_budget(folder);
}

/* A program in place of the pack's, which needs LD_LIBRARY_PATH to start, and prints its
 * arguments. */
static const char needs_libraries[] =
    "cd \"$1\" && mkdir -p from/bin from/lib bare && cp \"$OLDPWD/tools/gpu\" bare/one.sh\n"
    "cat >from/bin/llamero <<'end'\n"
    "#!/bin/sh\n"
    "case :$LD_LIBRARY_PATH: in */lib:*) ;; *) exit 127 ;; esac\n"
    "if [ \"$1\" = --version ]; then echo 'GPU        cuda, libraries'; else echo \"$@\"; fi\n"
    "end\n"
    "chmod +x from/bin/llamero && tar -C from -cJf bare/pack.tar.xz . || exit\n"
    "unset LD_LIBRARY_PATH; sh bare/one.sh -t 120 found bench-1b || exit\n"
    "grep -q 'device.kind=cuda' found.logs/bench-1b.log\n";

TEST(a_gpu_pack_requires_the_gpu_also_where_only_it_has_the_libraries_of_its_programs)
{
    CHECK(shell(needs_libraries, test_folder(), NULL, NULL) == 0);
}

/* A program in place of the pack's, on one of the two dies of an MI250X. */
static const char without_nvidia_smi[] =
    "cd \"$1\" && mkdir -p from/bin bare path && cp \"$OLDPWD/tools/gpu\" bare/one.sh\n"
    "cat >from/bin/llamero <<'end'\n"
    "#!/bin/sh\n"
    "case $1 in\n"
    "--version) echo 'GPU        hip, libraries' ;;\n"
    "doctor) echo 'ok    gpu             AMD Instinct MI250X, 63.98 GiB, 63.90 GiB free' ;;\n"
    "*) echo \"$@\" ;;\n"
    "esac\n"
    "end\n"
    "printf '#!/bin/sh\\nexit 9\\n' >path/nvidia-smi\n"
    "chmod +x from/bin/llamero path/nvidia-smi\n"
    "tar -C from -cJf bare/pack.tar.xz . && PATH=$PWD/path:$PATH || exit\n"
    "sh bare/one.sh -t 300 found machine bench-8b # its machine has no gpu_check\n"
    "grep -q 'model.n_layers=8 ' found.logs/bench-8b.log || exit\n"
    "sh bare/one.sh -t 300 alone bench-8b || exit\n"
    "grep -q 'model.n_layers=8 ' alone.logs/bench-8b.log\n";

TEST(the_benchmark_of_8b_takes_fewer_blocks_on_a_small_gpu_without_nvidia_smi)
{
    CHECK(shell(without_nvidia_smi, test_folder(), NULL, NULL) == 0);
}

/* A program in place of the pack's that finds no GPU. */
static const char finds_no_gpu[] =
    "cd \"$1\" && mkdir -p from/bin bare && cp \"$OLDPWD/tools/gpu\" bare/one.sh\n"
    "printf '#!/bin/sh\\necho computing; echo error: no GPU found: no driver >&2; exit 69\\n' \\\n"
    "    >from/bin/llamero && chmod +x from/bin/llamero && cp from/bin/llamero from/bin/gpu_check\n"
    "tar -C from -cJf bare/pack.tar.xz . && sh bare/one.sh -t 120 none operations bits bench-1b\n";

TEST(a_gpu_pack_stops_where_no_gpu_is_found)
{
    struct text out = {0};
    CHECK(shell(finds_no_gpu, test_folder(), &out, NULL) == 1);
    CHECK(HAS_LINES(&out, "\nFAILED  operations (", "error: no GPU found: no driver\n",
                    "            computing\n", "skipped bits: no GPU found\n",
                    "skipped bench-1b: no GPU found\n", "0 passed, 1 failed, 2 skipped"));
    text_release(&out);
}

/* Programs in place of the pack's; compute-sanitizer is in PATH. */
static const char finds_an_error[] =
    "cd \"$1\" && mkdir -p from/bin bare path && cp \"$OLDPWD/tools/gpu\" bare/one.sh\n"
    "printf '#!/bin/sh\\necho \"$ERROR\"; exit 1\\n' >from/bin/gpu_check\n"
    "printf '#!/bin/sh\\nexit 0\\n' >from/bin/llamero && cp from/bin/llamero "
    "path/compute-sanitizer\n"
    "chmod +x from/bin/* path/*; tar -C from -cJf bare/pack.tar.xz .\n"
    "PATH=$PWD/path:$PATH sh bare/one.sh -t 120 found operations nccl sanitizer\n";

TEST(a_gpu_check_runs_the_sanitizer_early_only_after_a_bad_access)
{
    struct text out = {0};
    setenv("ERROR", "FAILED gemm: 3 of 5 differ", 1);
    CHECK(shell(finds_an_error, test_folder(), &out, NULL) == 1);
    CHECK(strstr(out.data, " sanitizer (") > strstr(out.data, " nccl ("));
    text_clear(&out);
    setenv("ERROR", "error: an illegal memory access was encountered", 1);
    CHECK(shell(finds_an_error, test_folder(), &out, NULL) == 1);
    CHECK(strstr(out.data, " sanitizer (") &&
          strstr(out.data, " sanitizer (") < strstr(out.data, " nccl ("));
    unsetenv("ERROR");
    text_release(&out);
}

TEST(the_first_call_of_a_gpu_check_reaches_torch_even_if_every_part_takes_its_limit)
{
    struct text out = {0};
    CHECK(shell("awk '/^part / { sum += $3; print } /^part torch-1b / { print sum; exit }' "
                "tools/gpu",
                test_folder(), &out, NULL) == 0);
    CHECK(strstr(out.data, "part machine 30\n") && strstr(out.data, "part torch-1b 100 torch\n"));
    CHECK(atoi(strstr(out.data, "torch\n") + strlen("torch\n")) < 560);
    text_release(&out);
}

TEST(a_check_that_ends_its_process_does_not_end_the_checks_after_it)
{
    struct text out = {0};
    CHECK(shell("\"$3\" self", test_folder(), &out, NULL) == 1);
    CHECK(HAS_LINES(&out, "FAILED an end: its process was ended by signal 9",
                    "4 comparisons, 2 mismatches;"));
    text_release(&out);
}

TEST(a_gpu_check_names_unknown_parts_and_budgets)
{
    struct text err = {0};
    CHECK(shell("tools/gpu \"$1\" operations speed", test_folder(), NULL, &err) == 64);
    CHECK(strstr(err.data, "unknown part \"speed\"; expected one of: machine operations"));
    text_clear(&err);
    CHECK(shell("tools/gpu -t soon \"$1\"", test_folder(), NULL, &err) == 64);
    CHECK(strstr(err.data, "-t: expected seconds, got \"soon\""));
    CHECK(shell("tools/gpu", test_folder(), NULL, &err) == 64);
    text_release(&err);
}
