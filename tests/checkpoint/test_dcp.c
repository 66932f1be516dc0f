// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dcp.h"
#include "test.h"

/* Of torch itself, saved by two ranks (tests/oracle/dcp_folder.py). */
#define DCP "tests/checkpoint/data/dcp"

static const char *copy(void)
{
    static const char *const names[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
    const char *folder = test_folder();
    struct text t = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_STATUS(OK, file_read(test_path(DCP, names[i]), 1 << 20, &t));
        CHECK_STATUS(OK, file_write(test_path(folder, names[i]), t.data, t.len));
    }
    text_release(&t);
    return folder;
}

TEST(a_directory_of_torch_is_the_tensors_that_its_ranks_saved)
{
    const struct patch_name q = {PARAM_attn_q, 1, PATCH_WEIGHT}, no = {PARAM_attn_q, 2, 0};
    struct patches p;
    CHECK(dcp_is_here(DCP) && !dcp_is_here("tests/checkpoint/data/tied"));
    CHECK_STATUS(OK, dcp_open(&p, DCP, NULL));
    const struct patched *t = patches_find(&p, &q);
    CHECK(p.count == 21 && p.num_maps == 2 && t && t->rows == 16 && t->columns == 16);
    CHECK(t->count == 2 && t->all[0].dtype == SAFETENSORS_BF16 && !patches_find(&p, &no));
    patches_release(&p);
}

TEST(a_directory_of_torch_whose_metadata_is_cut_off_at_any_byte_is_refused)
{
    const char *folder = copy(), *path = test_path(folder, ".metadata");
    struct text t = {0};
    struct patches p;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t len = 0; len < t.len; len += len < 64 || len + 64 > t.len ? 1 : 13) {
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(t.data, 1, len, f) == len && !fclose(f));
        CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
        CHECK_MESSAGE(".metadata");
    }
    text_release(&t);
}

TEST(no_changed_byte_of_a_metadata_leads_out_of_the_files)
{
    const char *folder = copy(), *path = test_path(folder, ".metadata");
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t i = 0; i < t.len; i += 5) {
        struct patches p;
        FILE *f = fopen(path, "wb");
        t.data[i] ^= 1;
        CHECK(f && fwrite(t.data, 1, t.len, f) == t.len && !fclose(f));
        t.data[i] ^= 1;
        if (dcp_open(&p, folder, NULL)) continue;
        for (size_t k = 0; k < p.count; k++) {
            const struct patched *one = &p.tensors[k];
            size_t elements = (size_t)(one->rows * one->columns);
            float *room = heap((elements ? elements : 1) * sizeof *room);
            enum status st = patches_read(&p, one, 0, elements, room);
            CHECK(!st || st == STATUS_DATA);
            free(room);
        }
        patches_release(&p);
    }
    text_release(&t);
}

TEST(a_file_of_a_rank_that_is_cut_off_or_gone_is_told)
{
    const char *folder = copy(), *path = test_path(folder, "__1_0.distcp");
    struct text t = {0};
    struct patches p;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t len = 0; len < t.len; len += 499) {
        CHECK_STATUS(OK, file_write(path, t.data, len));
        CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
    }
    CHECK_STATUS(OK, file_remove_tree(path));
    CHECK_STATUS(MISSING, dcp_open(&p, folder, NULL));
    CHECK_MESSAGE("__1_0.distcp");
    text_release(&t);
}

TEST(a_metadata_that_names_a_file_elsewhere_or_a_function_is_refused)
{
    const char *folder = copy(), *path = test_path(folder, ".metadata");
    struct text t = {0};
    struct patches p;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    char *name = memmem(t.data, t.len, "__0_0.distcp", 12);
    CHECK(name);
    memcpy(name, "../__0.distc", 12);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
    CHECK_MESSAGE("names a file that is not in the folder");
    CHECK_STATUS(OK, file_write(path, "\x80\2cos\nsystem\n.", 14));
    CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
    CHECK_MESSAGE("it names os.system");
    text_release(&t);
}
