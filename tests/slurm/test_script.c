// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "slurm/script.h"

#include <sys/stat.h>

static struct slurm_script plain_job(void)
{
    return (struct slurm_script){.name = "run",
                                 .time = "1-12",
                                 .partition = "",
                                 .account = "",
                                 .nodes = 4,
                                 .ranks_per_node = 2,
                                 .cpus_per_rank = 8,
                                 .signal_before_s = 300,
                                 .mpi = SLURM_MPI_pmix,
                                 .interface = "",
                                 .program = "/bin/llamero",
                                 .folder = "/",
                                 .config = "run.toml",
                                 .checkpoints = "/nowhere",
                                 .remark = "8 ranks"};
}

static void check_line(const struct text *script, const char *line, bool is_present)
{
    struct text whole = {0};
    text_addf(&whole, "\n%s\n", line);
    if ((strstr(script->data, whole.data) != NULL) != is_present)
        print_error("\"%s\" is %sin\n%s", line, is_present ? "not " : "", script->data);
    CHECK((strstr(script->data, whole.data) != NULL) == is_present);
    text_release(&whole);
}

TEST(batch_script_requests_the_configured_resources)
{
    struct slurm_script b = plain_job();
    struct text t = {0};
    script_write(&b, &t);
    static const char *const lines[] = {
        "#SBATCH --job-name=run",      "#SBATCH --nodes=4",          "#SBATCH --ntasks-per-node=2",
        "#SBATCH --cpus-per-task=8",   "#SBATCH --time=1-12",        "#SBATCH --signal=B:USR1@300",
        "#SBATCH --requeue",           "#SBATCH --open-mode=append", "#SBATCH --output=%x-%j.out",
        "export SLURM_PMIX_FENCE=ring"};
    CHECK(!strncmp(t.data, "#!/bin/sh\n#SBATCH", 17));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) check_line(&t, lines[i], true);
    check_line(&t, "#SBATCH --exclusive", false);
    CHECK(!strstr(t.data, "--partition") && !strstr(t.data, "NCCL") && !strstr(t.data, "gpu"));
    b.partition = "batch", b.account = "stf218", b.mpi = SLURM_MPI_pmi2, b.interface = "hsn0";
    b.cpus_per_rank = 0, b.gpus_per_node = 8;
    text_clear(&t);
    script_write(&b, &t);
    check_line(&t, "#SBATCH --partition=batch", true);
    check_line(&t, "#SBATCH --account=stf218", true);
    check_line(&t, "#SBATCH --exclusive", true);
    check_line(&t, "#SBATCH --gpus-per-node=8", true);
    check_line(&t, "export OMPI_MCA_btl_tcp_if_include=hsn0", true);
    check_line(&t, "export NCCL_SOCKET_IFNAME=hsn0", true);
    CHECK(strstr(t.data, "srun --mpi=pmi2") && !strstr(t.data, "SLURM_PMIX_FENCE"));
    text_release(&t);
}

/* Makes a fake srun that records its arguments and then runs `body`, and a fake scontrol. */
static const char *make_fake_slurm(const char *folder, const char *body)
{
    struct text t = {0};
    const char *bin = test_path(folder, "bin");
    CHECK_STATUS(OK, file_make_dirs(bin));
    const char *srun = test_path(bin, "srun"), *scontrol = test_path(bin, "scontrol");
    text_addf(&t, "#!/bin/sh\nprintf '%%s\\n' \"$@\" > %s/arguments\npwd > %s/pwd\n%s\n", folder,
              folder, body);
    CHECK_STATUS(OK, file_write(srun, t.data, t.len));
    text_clear(&t);
    text_addf(&t, "#!/bin/sh\necho \"$@\" >> %s/requeued\n", folder);
    CHECK_STATUS(OK, file_write(scontrol, t.data, t.len));
    CHECK(!chmod(srun, 0755) && !chmod(scontrol, 0755));
    text_release(&t);
    return bin;
}

/* Runs the script as Slurm's batch shell would. */
static int run_script(const struct slurm_script *b, const char *folder, const char *bin,
                      int restarts)
{
    struct text script = {0}, line = {0};
    script_write(b, &script);
    const char *path = test_path(folder, "script");
    CHECK_STATUS(OK, file_write(path, script.data, script.len));
    text_addf(&line,
              "PATH=%s:$PATH SLURM_JOB_ID=77 SLURM_CPUS_ON_NODE=9 SLURM_RESTART_COUNT=%d "
              "exec sh %s",
              bin, restarts, path);
    int code = test_run((const char *const[]){"sh", "-c", line.data, NULL}, NULL, NULL);
    text_release(&script), text_release(&line);
    return code;
}

TEST(batch_script_quotes_any_path_and_setting)
{
    const char *folder = test_folder();
    const char *bin = make_fake_slurm(folder, "exit 0"),
               *work = test_path(folder, "it's a \"$HOME\" `x` \\");
    struct slurm_script b = plain_job();
    struct text got = {0};
    const char *settings[] = {"job.description=it's; a # b\nc", "data.tokenizer=$(false)"};
    CHECK_STATUS(OK, file_make_dirs(work));
    b.folder = work, b.program = "/opt/my programs/llamero", b.config = "--it's.toml";
    b.checkpoints = "/no where'/\"";
    b.settings = settings, b.num_settings = 2, b.cpus_per_rank = 0;
    CHECK(run_script(&b, folder, bin, 0) == 0);
    CHECK_STATUS(OK, file_read(test_path(folder, "arguments"), 4096, &got));
    CHECK(!strcmp(got.data, "--mpi=pmix\n--nodes=4\n--ntasks-per-node=2\n--cpus-per-task=4\n"
                            "--cpu-bind=cores\n--kill-on-bad-exit=0\n--wait=15\n"
                            "/opt/my programs/llamero\ntrain\n"
                            "job.description=it's; a # b\nc\ndata.tokenizer=$(false)\n"
                            "--\n--it's.toml\n"));
    CHECK_STATUS(OK, file_read(test_path(folder, "pwd"), 4096, &got));
    CHECK(!strncmp(got.data, work, strlen(work)) && got.len == strlen(work) + 1);
    CHECK(!file_exists(test_path(folder, "requeued")));
    b.folder = "/nowhere/at all";
    CHECK(run_script(&b, folder, bin, 0) == 66);
    text_release(&got);
}

TEST(batch_script_forwards_the_signal_waits_and_requeues_the_job)
{
    const char *folder = test_folder();
    struct text got = {0};
    /* Slurm signals only the shell, here twice. */
    const char *bin =
        make_fake_slurm(folder, "n=0\ntrap 'n=$((n+1))' USR1\n"
                                "kill -USR1 $PPID\nwhile [ $n -lt 1 ]; do sleep 0.01; done\n"
                                "kill -USR1 $PPID\nwhile [ $n -lt 2 ]; do sleep 0.01; done\n"
                                "exit 75");
    struct slurm_script b = plain_job();
    CHECK(run_script(&b, folder, bin, 50) == 75);
    CHECK_STATUS(OK, file_read(test_path(folder, "requeued"), 4096, &got));
    CHECK(!strcmp(got.data, "requeue 77\n"));
    text_release(&got);
}

TEST(batch_script_ends_a_cancelled_job_cleanly_and_does_not_requeue_it)
{
    const char *folder = test_folder();
    const char *bin = make_fake_slurm(folder, "n=0\ntrap n=1 USR1\nkill -TERM $PPID\n"
                                              "while [ $n -lt 1 ]; do sleep 0.01; done\nexit 75");
    struct slurm_script b = plain_job();
    CHECK(run_script(&b, folder, bin, 0) == 75);
    CHECK(!file_exists(test_path(folder, "requeued")));
    /* At the time limit TERM follows USR1. */
    folder = test_folder();
    bin = make_fake_slurm(folder, "n=0\ntrap 'n=$((n+1))' USR1\nkill -USR1 $PPID\n"
                                  "while [ $n -lt 1 ]; do sleep 0.01; done\nkill -TERM $PPID\n"
                                  "while [ $n -lt 2 ]; do sleep 0.01; done\nexit 75");
    CHECK(run_script(&b, folder, bin, 0) == 75);
    CHECK(file_exists(test_path(folder, "requeued")));
}

static bool is_requeued(const char *body, int want, int restarts)
{
    const char *folder = test_folder();
    const char *checkpoints = test_path(folder, "checkpoint");
    struct slurm_script b = plain_job();
    CHECK_STATUS(OK, file_make_dirs(checkpoints));
    b.folder = folder, b.checkpoints = checkpoints;
    CHECK(run_script(&b, folder, make_fake_slurm(folder, body), restarts) == want);
    return file_exists(test_path(folder, "requeued"));
}

TEST(batch_script_requeues_only_after_failures_that_may_be_transient)
{
    CHECK(!is_requeued("exit 0", 0, 0));
    CHECK(!is_requeued("exit 78", 78, 0));
    CHECK(!is_requeued("exit 80", 80, 0));
    CHECK(is_requeued("exit 75", 75, 9));
    CHECK(is_requeued("exit 81", 81, 2));
    CHECK(is_requeued("kill -9 $$", 137, 0));
    CHECK(!is_requeued("exit 81", 81, 3));
    CHECK(is_requeued("mkdir checkpoint/step-20; exit 81", 81, 3));
    CHECK(!is_requeued("mkdir checkpoint/step-20.tmp-1; exit 81", 81, 3));
}

TEST(script_parses_times_like_slurm)
{
    static const struct {
        const char *time;
        int64_t seconds;
    } good[] = {{"90", 5400},     {"0:30", 30},        {"12:00:00", 43200},
                {"1-12", 129600}, {"1-0:30", 88200},   {"2-01:00:07", 176407},
                {"0-0:0:1", 1},   {"999999", 59999940}};
    static const char *const bad[] = {"",    "0",     "a",   "1-",       "1:",      "1:2:3:4",
                                      "-1",  "1-2-3", "1h",  "0-0:0:0",  "9999999", "1-1:1:1:1",
                                      ":30", "1:-1",  " 90", "unlimited"};
    int64_t seconds;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_STATUS(OK, script_parse_time(good[i].time, &seconds));
        if (seconds != good[i].seconds) print_error("%s\n", good[i].time);
        CHECK(seconds == good[i].seconds);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(USAGE, script_parse_time(bad[i], &seconds));
}

TEST(script_accepts_only_plain_words_in_sbatch_lines)
{
    CHECK_STATUS(OK, script_check_word("partition", "gpu_a100-long.2,batch"));
    CHECK_STATUS(OK, script_check_word("partition", ""));
    static const char *const bad[] = {"a b", "a\n#SBATCH --x", "a;b", "a#b", "'", "$x", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(USAGE, script_check_word("partition", bad[i]));
    CHECK_MESSAGE("--partition");
}
