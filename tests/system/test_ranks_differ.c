// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"
#include "system/runs.h"

#include "tokenizer/tokenizer.h"

#include <fcntl.h>
#include <sys/stat.h>

/* Two launched ranks of which one differs: in an argument, a file, or the program.  Each case must
 * end with 78 and one message that names what differs, both values and both ranks. */

enum { MAX_WORDS = 24 };

/* How a rank is started; NULL: as usual. */
struct launched_rank {
    const char *program, *folder, *config, *setting;
};

static const char *program_under_test(void)
{
    static char path[4096];
    const char *program = getenv("LLAMERO");
    CHECK(realpath(program ? program : "build/llamero", path));
    return path;
}

/* Appends the words of `llamero train` on one rank. */
static int add_words(const char **words, int n, const struct launched_rank *r, const char *dump)
{
    words[n++] = "env", words[n++] = "-C", words[n++] = r->folder;
    words[n++] = r->program ? r->program : program_under_test();
    words[n++] = "train", words[n++] = r->config ? r->config : "run.toml", words[n++] = dump;
    if (r->setting) words[n++] = r->setting;
    return n;
}

/* Trains on two ranks, with the same dump folder. */
static int train_two(const struct launched_rank *first, const struct launched_rank *second,
                     struct text *err)
{
    /* With `A : B` mpirun of Open MPI 5.0.7 crashes. */
    static const char choose[] =
        "count=$1; shift\n"
        "case ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in 1) shift \"$count\"; count=$#; esac\n"
        "i=0; for word; do\n"
        "  [ $i != 0 ] || set --\n"
        "  i=$((i + 1)); [ $i -gt \"$count\" ] || set -- \"$@\" \"$word\"\n"
        "done; exec \"$@\"";
    const char *words[2 * MAX_WORDS] = {"sh", "-c", choose, "choose"};
    struct text dump = {0};
    char number[16];
    text_addf(&dump, "job.dump_folder=%s", test_path(first->folder, "out"));
    int n = add_words(words, 5, first, dump.data);
    snprintf(number, sizeof number, "%d", n - 5);
    words[4] = number;
    add_words(words, n, second, dump.data);
    int code = launched_command(2, words, NULL, err);
    text_release(&dump);
    if (code < 0) skip();
    return code;
}

/* A folder with a configuration, whose paths are relative, and its data. */
static const char *new_folder(const char *parent, const char *name)
{
    const char *folder = test_path(parent, name);
    CHECK(!mkdir(folder, 0777));
    runs_write_corpus(test_path(folder, "corpus.txt"), 60000);
    runs_write_corpus(test_path(folder, "other.txt"), 50000);
    runs_write_config(test_path(folder, "run.toml"), "corpus.txt");
    return folder;
}

static void check_is_refused(const struct launched_rank *first, const struct launched_rank *second,
                             const char *part)
{
    struct text err = {0};
    int code = train_two(first, second, &err);
    const char *at = strstr(err.data, part);
    if (code != 78 || !at || strstr(at + 1, part))
        fail_msg("exit code %d, \"%s\" expected once in: %s", code, part, err.data);
    CHECK(strstr(at, " on rank 0 (") && strstr(at, " on rank 1 ("));
    text_release(&err);
}

TEST(ranks_with_another_setting_are_refused)
{
    static const struct {
        const char *setting, *part;
    } cases[] = {
        {"optimizer.lr=0.5", "optimizer.lr is 0.003 on rank 0 ("},
        {"debug.seed=7", "debug.seed is 0 on rank 0 ("},
        {"training.seq_len=16", "training.seq_len is 32 on rank 0 ("},
        {"data.source.0.path=other.txt", "data.source.0.path is \"corpus.txt\" on rank 0 ("},
        {"training.steps=20", "training.steps is 40 on rank 0 ("},
        {"metrics.log_freq=3", "metrics.log_freq is 1 on rank 0 ("},
        {"checkpoint.interval=7", "checkpoint.interval is 10 on rank 0 ("},
        {"model.ffn_hidden=32", "model.ffn_hidden is 64 on rank 0 ("},
        {"parallelism.tensor_parallel_degree=2", "parallelism.tensor_parallel_degree is 1 on"},
    };
    const char *folder = new_folder(test_folder(), "a");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += TEST_SLOWED ? 8 : 1) {
        struct launched_rank first = {.folder = folder};
        struct launched_rank second = {.folder = folder, .setting = cases[i].setting};
        check_is_refused(&first, &second, cases[i].part);
    }
}

TEST(ranks_with_another_build_of_the_program_are_refused)
{
    const char *folder = new_folder(test_folder(), "a"), *copy = test_path(folder, "llamero");
    runs_copy_other_build(copy);
    struct launched_rank first = {.folder = folder};
    struct launched_rank second = {.folder = folder, .program = copy};
    check_is_refused(&first, &second, "the program differs between ranks: llamero is version ");
}

/* Each rank has a folder of its own, as on hosts that do not share a file system. */
TEST(ranks_with_copies_of_files_train_and_with_other_content_are_refused)
{
    const char *parent = test_folder(), *a = new_folder(parent, "a"), *b = new_folder(parent, "b");
    struct text t = {0}, err = {0};
    struct launched_rank first = {.folder = a, .setting = "training.steps=3"};
    struct launched_rank second = {.folder = b, .setting = "training.steps=3"};
    int code = train_two(&first, &second, &err);
    if (code) print_error("%s\n", err.data);
    CHECK(code == 0);

    const char *corpus = test_path(b, "corpus.txt"); /* the same size and time */
    struct stat s;
    CHECK(!stat(corpus, &s));
    CHECK_STATUS(OK, file_read(corpus, 1 << 20, &t));
    memcpy(strstr(t.data + 40000, "llama"), "camel", 5);
    CHECK_STATUS(OK, file_write(corpus, t.data, t.len));
    CHECK(!utimensat(AT_FDCWD, corpus, (struct timespec[2]){s.st_atim, s.st_mtim}, 0));
    first.setting = second.setting = NULL; /* also when it resumes */
    check_is_refused(&first, &second, "data.source.0, file 1, corpus.txt, is ");
    text_release(&t), text_release(&err);
}

/* Swaps two tokens' IDs in one rank's tokenizer. */
TEST(ranks_with_another_tokenizer_are_refused)
{
    const char *parent = test_folder(), *a = new_folder(parent, "a"), *b = new_folder(parent, "b");
    const struct tokenizer_config options = {.meta_cuts = false};
    struct tokenizer *bytes;
    CHECK_STATUS(OK, tokenizer_open(&bytes, "bytes", &options));
    CHECK_STATUS(OK, tokenizer_copy(bytes, a));
    runs_swap_ids(test_path(a, "tokenizer.json"), test_path(b, "tokenizer.json"), 'A', 'B');
    struct launched_rank first = {.folder = a, .setting = "data.tokenizer=tokenizer.json"};
    struct launched_rank second = {.folder = b, .setting = "data.tokenizer=tokenizer.json"};
    check_is_refused(&first, &second, "the tokenizer is ");
    tokenizer_close(bytes);
}

/* Ranks of which one starts a transfer of the same bytes as the others, but of another type. */
RANKS(transfer_of_another_type)
{
    float x[8] = {0};
    bool odd = world->rank == 1;
    struct transfer t = {TRANSFER_all_gather, odd ? BF16 : F32, odd ? 4 : 2, .x = x};
    world->counts->is_checked = true;
    enum status st = comm_run(world, &t);
    const char *part = "rank 1 its number 1, all_gather of 4 bfloat16";
    if (st != STATUS_COMM || !strstr(status_message(), part))
        FAIL(DATA, "status %d: %s", (int)st, status_message());
    return STATUS_OK;
}

TEST(a_checked_group_of_launched_ranks_names_another_collective)
{
    struct text err = {0};
    int code = launched_run(3, "transfer_of_another_type", &err);
    if (code < 0) skip();
    if (code) print_error("%s\n", err.data);
    CHECK(code == 0);
    text_release(&err);
}

TEST(ranks_train_the_same_with_every_collective_checked)
{
    static const char *const layouts[] = {"data_parallel_shard_degree=2",
                                          "tensor_parallel_degree=2", "context_parallel_degree=2",
                                          "pipeline_parallel_degree=2"};
    const char *folder = new_folder(test_folder(), "a"), *config, *plain, *checked;
    config = test_path(folder, "run.toml"), plain = test_path(folder, "plain");
    checked = test_path(folder, "checked");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i += TEST_SLOWED ? 8 : 1) {
        char settings[400];
        struct text path = {0};
        text_addf(&path, "data.source.0.path=%s", test_path(folder, "corpus.txt"));
        for (int on = 0; on < 2; on++) {
            snprintf(settings, sizeof settings,
                     "training.steps=4 checkpoint.enable=false model.vocab_size=264 %s "
                     "parallelism.%s debug.check_collectives=%s guard.check_collectives=%d",
                     path.data, layouts[i], on ? "true" : "false", on);
            CHECK_STATUS(OK, file_remove_tree(on ? checked : plain));
            int code = runs_train_ranks(2, config, on ? checked : plain, settings, NULL);
            if (code < 0) skip();
            CHECK(code == 0);
        }
        runs_check_same_metrics(plain, checked);
        text_release(&path);
    }
}
