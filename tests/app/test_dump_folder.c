// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/dump_folder.h"
#include "base/file.h"
#include "base/log.h"
#include "config/config.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static enum status check(const char *folder, const char *setting)
{
    struct config c;
    struct text dump = {0};
    text_addf(&dump, "job.dump_folder=%s", folder);
    const char *const settings[] = {dump.data, "checkpoint.enable=true", setting};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, setting ? 3 : 2));
    enum status st = dump_folder_check(&c);
    config_release(&c);
    text_release(&dump);
    return st;
}

TEST(dump_folder_may_be_missing_and_is_not_created)
{
    const char *folder = test_folder(), *path = test_path(folder, "a/b/c");
    struct file_list l = {0};
    CHECK_STATUS(OK, check(path, NULL));
    CHECK_STATUS(OK, check(folder, NULL));
    CHECK_STATUS(OK, file_list_dir(&l, folder));
    CHECK(!l.count);
    file_list_release(&l);
}

TEST(dump_folder_that_cannot_be_created_is_an_error)
{
    const char *folder = test_folder(), *file = test_path(folder, "file");
    CHECK_STATUS(OK, file_write(file, "x", 1));
    CHECK_STATUS(IO, check(file, NULL));
    CHECK_MESSAGE("file is not a folder");
    CHECK_STATUS(IO, check(test_path(file, "below"), NULL));
    CHECK_MESSAGE("file is not a folder");
    CHECK_STATUS(IO, check("/proc/x", NULL));
    CHECK_MESSAGE("job.dump_folder = \"/proc/x\": cannot create files in /proc");
}

TEST(dump_folder_with_entries_of_the_wrong_kind_is_an_error)
{
    const char *folder = test_folder();
    CHECK(!mkdir(test_path(folder, "log.txt"), 0777));
    CHECK_STATUS(IO, check(folder, NULL));
    CHECK_MESSAGE("log.txt: expected a file");
    folder = test_path(folder, "log.txt");
    CHECK_STATUS(OK, file_write(test_path(folder, "saved"), "x", 1));
    CHECK_STATUS(IO, check(folder, "checkpoint.folder=saved"));
    CHECK_MESSAGE("saved is not a folder");
}

static enum status check_space_in(const char *folder, const struct model_shape *shape, int64_t step,
                                  const char *setting)
{
    struct config c;
    struct text dump = {0};
    text_addf(&dump, "job.dump_folder=%s", folder);
    const char *const settings[] = {dump.data, "checkpoint.enable=true", "checkpoint.interval=10",
                                    "training.steps=20", setting};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 5));
    enum status st = dump_folder_check_space(&c, shape, step);
    config_release(&c);
    text_release(&dump);
    return st;
}

static enum status check_space(const struct model_shape *shape, int64_t step, const char *setting)
{
    return check_space_in(test_folder(), shape, step, setting);
}

TEST(dump_folder_without_space_for_a_checkpoint_is_an_error)
{
    struct model_shape shape = {.V = 64, .D = 64, .L = 1, .H = 1, .G = 1, .K = 64, .F = 64};
    CHECK_STATUS(OK, check_space(&shape, 0, "checkpoint.keep_latest_k=0"));
    shape = (struct model_shape){
        .V = 64, .D = 1 << 20, .L = 1000, .H = 1, .G = 1, .K = 1 << 20, .F = 1 << 20};
    CHECK_STATUS(IO, check_space(&shape, 0, "checkpoint.keep_latest_k=0"));
    CHECK_MESSAGE("job.dump_folder = \"");
    CHECK_MESSAGE("not enough space: a checkpoint requires");
    CHECK_STATUS(IO, check_space(&shape, 15, "checkpoint.keep_latest_k=2"));
    CHECK_STATUS(OK, check_space(&shape, 20, "checkpoint.keep_latest_k=2")); /* has ended */
    CHECK_STATUS(OK, check_space(&shape, 0, "checkpoint.load_only=true"));
    CHECK_STATUS(OK, check_space(&shape, 0, "checkpoint.enable=false"));
}

/* Of three checkpoints the run sets those after its first step aside.  It keeps two, and has space
 * for one more, which is enough unless it begins at step 0. */
TEST(dump_folder_does_not_count_checkpoints_that_a_run_sets_aside)
{
    const char *folder = test_folder(), *set = "checkpoint.keep_latest_k=2";
    struct model_shape shape = {.V = 64, .D = 64, .L = 100, .H = 1, .G = 1, .K = 64};
    struct statvfs fs;
    struct text log = {0};
    CHECK(!statvfs(folder, &fs));
    shape.F = (int)(0.7 * (double)fs.f_bavail * (double)fs.f_frsize / 12 / (3 * 64 * 100));
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(OK, file_make_dirs(test_path(folder, i == 0   ? "checkpoint/step-0"
                                                          : i == 1 ? "checkpoint/step-5"
                                                                   : "checkpoint/step-9")));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "checkpoint/abandoned-0-1/step-3")));
    CHECK_STATUS(OK, file_write(test_path(folder, "checkpoint/abandoned-0-1/step-3/x"), "x", 1));
    CHECK_STATUS(OK, log_open(test_path(folder, "log.txt")));
    CHECK_STATUS(OK, check_space_in(folder, &shape, 9, set));
    CHECK_STATUS(OK, check_space_in(folder, &shape, -1, set));
    CHECK_STATUS(OK, file_read(test_path(folder, "log.txt"), 1 << 20, &log));
    CHECK(!log.len);
    CHECK_STATUS(OK, check_space_in(folder, &shape, 0, set));
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(test_path(folder, "log.txt"), 1 << 20, &log));
    CHECK(strstr(log.data, "the run will save 2 more checkpoints of "));
    CHECK(strstr(log.data, "set aside in ") && strstr(log.data, "/abandoned-* take 1 B"));
    text_release(&log);
}

TEST(dump_folder_looks_for_space_where_checkpoints_are_saved)
{
    const struct model_shape huge = {
        .V = 64, .D = 1 << 20, .L = 1000, .H = 1, .G = 1, .K = 1 << 20, .F = 1 << 20};
    struct text saved = {0};
    text_addf(&saved, "checkpoint.folder=%s/saved", test_folder());
    CHECK_STATUS(IO, check_space(&huge, 0, saved.data));
    CHECK_MESSAGE("checkpoint.folder = \"/");
    CHECK_STATUS(OK, check_space(&huge, 0, "checkpoint.folder=/proc/saved")); /* of unknown size */
    text_release(&saved);
}

/* A folder of another file system than the test's, whose size is known; NULL: none found. */
static const char *find_other_disk(void)
{
    static const char *const folders[] = {"/dev/shm", "/dev", "/", "/tmp"};
    struct stat own, other;
    struct statvfs fs;
    CHECK(!stat(test_folder(), &own));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (!stat(folders[i], &other) && other.st_dev != own.st_dev && !statvfs(folders[i], &fs) &&
            fs.f_blocks)
            return folders[i];
    return NULL;
}

TEST(dump_folder_without_space_behind_a_link_names_the_key_of_the_link)
{
    const struct model_shape huge = {
        .V = 64, .D = 1 << 20, .L = 1000, .H = 1, .G = 1, .K = 1 << 20, .F = 1 << 20};
    const char *disk = find_other_disk(), *folder = test_folder();
    if (!disk) skip();
    CHECK(!symlink(disk, test_path(folder, "link")));
    CHECK_STATUS(IO, check_space_in(folder, &huge, 0, "checkpoint.folder=link"));
    CHECK_MESSAGE("checkpoint.folder = \"link\": not enough space");
    CHECK(!symlink(test_folder(), test_path(folder, "here")));
    CHECK_STATUS(IO, check_space_in(folder, &huge, 0, "checkpoint.folder=here"));
    CHECK_MESSAGE("job.dump_folder = \"");
}

static double checkpoint_bytes(const struct model_shape *shape, const char *setting)
{
    struct config c;
    CHECK_STATUS(OK, config_load(&c, NULL, &setting, 1));
    double bytes = dump_folder_checkpoint_bytes(&c, shape);
    config_release(&c);
    return bytes;
}

TEST(dump_folder_counts_the_moving_average_as_part_of_a_checkpoint)
{
    const struct model_shape shape = {.V = 8, .D = 4, .L = 1, .H = 1, .G = 1, .K = 4, .F = 6};
    double parameters = 2 * 8 * 4 + 4 * 4 * 4 + 3 * 4 * 6 + 3 * 4;
    CHECK(checkpoint_bytes(&shape, "optimizer.ema_decay=0") == 12 * parameters);
    CHECK(checkpoint_bytes(&shape, "optimizer.ema_decay=0.999") == 16 * parameters);
    double matrices = 4 * 4 * 4 + 3 * 4 * 6;
    CHECK(checkpoint_bytes(&shape, "optimizer.name=Muon") == 12 * parameters - 4 * matrices);
}
