// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/rig.h"

#include <unistd.h>

enum { T = 16 };

/* `documents` lines of jsonl that begin with `word`. */
static void write_lines(const char *path, const char *word, int documents)
{
    struct text t = {0};
    for (int i = 0; i < documents; i++)
        text_addf(&t, "{\"text\": \"%s %d of a story\"}\n", word, 1000 + i);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

/* Reads `rows` rows of the path's files, and saves the position. */
static void save_after(const char *path, int rows, struct text *cursor)
{
    struct rig r;
    struct rows got = {0};
    rig_init(&r, "bytes", T);
    rig_add(&r, path, 1);
    struct loader *l = rig_open(&r);
    rows_read(&got, l, T, 1, rows);
    text_clear(cursor);
    loader_save(l, &(struct json_writer){.text = cursor});
    loader_close(l);
    rows_release(&got);
    rig_release(&r);
}

/* Loads the position over the files that the path names now, and reads some rows after it. */
static enum status resume(const char *path, const char *accepted, const struct text *cursor)
{
    struct rig r;
    struct json *root = NULL;
    struct rows got = {0};
    rig_init(&r, "bytes", T);
    rig_add(&r, path, 1);
    r.data.accept_changed = (struct option_list){&accepted, accepted != NULL};
    struct loader *l = rig_open(&r);
    CHECK_STATUS(OK, json_parse(cursor->data, cursor->len, "cursor", &root));
    enum status st = loader_load(l, root);
    if (!st) rows_read(&got, l, T, 2, 200); /* epochs, too */
    CHECK(st || got.count == 200);
    json_free(root);
    loader_close(l);
    rows_release(&got);
    rig_release(&r);
    return st;
}

TEST(a_position_over_edited_files_is_refused_and_the_file_named)
{
    const char *folder = test_folder(), *path = test_path(folder, "a.jsonl");
    struct text cursor = {0};
    write_lines(path, "llama", 50);
    save_after(path, 5, &cursor);
    CHECK_STATUS(OK, resume(path, NULL, &cursor));
    write_lines(path, "camel", 50);
    CHECK_STATUS(CONFIG, resume(path, NULL, &cursor));
    CHECK_MESSAGE("/a.jsonl: the content of the file has changed; it still has ");
    CHECK_MESSAGE("data.accept_changed = [\"/");
    CHECK_MESSAGE("; a new data.source.name reads a source from its first document; ");
    CHECK_MESSAGE("checkpoint.exclude_from_loading = [\"dataloader\"]");
    CHECK_STATUS(CONFIG, resume(path, "b.jsonl", &cursor));
    write_lines(path, "camel", 60);
    CHECK_STATUS(CONFIG, resume(path, NULL, &cursor));
    CHECK_MESSAGE("/a.jsonl: the file has ");
    text_release(&cursor);
}

/* Reader 0 of 2 has opened both files and sampled the first one. */
TEST(a_file_that_cannot_be_compared_is_not_a_damaged_checkpoint)
{
    const char *folder = test_folder(), *path = test_path(folder, "*.jsonl");
    const char *second = test_path(folder, "b.jsonl"), *accepted = "b.jsonl";
    struct text cursor = {0};
    struct json *root = NULL;
    struct rig r;
    write_lines(test_path(folder, "a.jsonl"), "llama", 50);
    write_lines(second, "llama", 50);
    save_after(path, 4, &cursor);
    rig_init(&r, "bytes", T);
    rig_add(&r, path, 1);
    r.options.num_readers = 2;
    r.data.accept_changed = (struct option_list){&accepted, 1};
    struct loader *l = rig_open(&r);
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &root));
    CHECK(!unlink(second) && !symlink("b.jsonl", second)); /* ELOOP */
    CHECK_STATUS(CONFIG, loader_load(l, root));
    CHECK_MESSAGE("comparing the data with the checkpoint: /");
    CHECK_MESSAGE("/b.jsonl: ");
    json_free(root);
    loader_close(l);
    rig_release(&r);
    text_release(&cursor);
}

TEST(a_change_is_accepted_by_path_name_or_pattern_and_logged)
{
    const char *folder = test_folder(), *path = test_path(folder, "a.jsonl");
    const char *log = test_path(folder, "log");
    const char *const accepted[] = {path, "a.jsonl", "*.jsonl", "*/a.json?"};
    struct text cursor = {0}, lines = {0};
    write_lines(path, "llama", 50);
    save_after(path, 5, &cursor);
    write_lines(path, "camel", 50);
    CHECK_STATUS(OK, log_open(log));
    for (size_t i = 0; i < 4; i++) CHECK_STATUS(OK, resume(path, accepted[i], &cursor));
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(log, 1 << 20, &lines));
    CHECK(strstr(lines.data, "accepted a change since the checkpoint was written: /"));
    text_release(&cursor), text_release(&lines);
}

TEST(an_accepted_position_reads_on_in_files_of_any_size)
{
    static const int sizes[] = {1, 3, 40, 49, 51, 90, 400};
    const char *folder = test_folder(), *path = test_path(folder, "a.jsonl");
    for (int rows = 0; rows < 60; rows += 7) {
        struct text cursor = {0};
        write_lines(path, "llama", 50);
        save_after(path, rows, &cursor);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            write_lines(path, "a llama", sizes[i]);
            enum status st = resume(path, "a.jsonl", &cursor);
            /* too few documents for the streams of the position */
            CHECK(st == (sizes[i] < 4 ? STATUS_CONFIG : STATUS_OK));
            if (st)
                CHECK_MESSAGE(
                    "a.jsonl: the run was started with 4 streams, and the source now has");
        }
        text_release(&cursor);
    }
}

TEST(an_accepted_position_reads_on_in_changed_files_of_every_kind)
{
    for (int kind = 0; kind < RIG_KINDS - 2; kind++) {
        struct rig r;
        struct rows got = {0};
        struct text cursor = {0};
        struct json *root;
        const char *accepted = "*", *folder = test_folder();
        rig_init(&r, "bytes", T);
        rig_add_kind(&r, folder, kind);
        struct loader *l = rig_open(&r);
        rows_read(&got, l, T, 1, 37);
        loader_save(l, &(struct json_writer){.text = &cursor});
        loader_close(l);
        rows_release(&got);
        struct text lines = {0}, packed = {0};
        rig_lines(&lines, "other", 20);
        rig_text(folder, "a.jsonl", lines.data);
        rig_gzip(&packed, lines.data, lines.len);
        rig_bytes(folder, "a.jsonl.gz", packed.data, packed.len);
        text_clear(&packed);
        rig_zstd(&packed, lines.data, lines.len);
        rig_bytes(folder, "a.jsonl.zst", packed.data, packed.len);
        rig_bytes(folder, "a.txt.zst", packed.data, packed.len);
        while (lines.len < 30000) rig_lines(&lines, "long", 60);
        rig_text(folder, "a.txt", lines.data);
        rig_tokens(folder, "tokens", (int[]){3, 1, 4, 1, 5, 9}, 6, 3);
        rig_array(folder, "rows.npy", 9, 11);
        CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &root));
        l = rig_open(&r);
        CHECK_STATUS(CONFIG, loader_load(l, root));
        CHECK_MESSAGE("the data has changed since the checkpoint was written: ");
        loader_close(l);
        r.data.accept_changed = (struct option_list){&accepted, 1};
        l = rig_open(&r);
        CHECK_STATUS(OK, loader_load(l, root));
        rows_read(&got, l, T, 2, 100);
        CHECK(got.count == 100);
        loader_close(l);
        json_free(root);
        rows_release(&got);
        text_release(&cursor), text_release(&lines), text_release(&packed);
        rig_release(&r);
    }
}

TEST(each_reader_compares_its_share_of_the_files_and_names_all_changes_if_one_differs)
{
    enum { READERS = 4, FILES = 8 };
    const char *folder = test_folder(), *all = test_path(folder, "*.jsonl");
    struct text cursor = {0};
    struct json *root;
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.jsonl", i);
        write_lines(test_path(folder, name), "llama", 10 + i);
    }
    save_after(all, 4, &cursor);
    write_lines(test_path(folder, "2.jsonl"), "camel", 12);
    write_lines(test_path(folder, "5.jsonl"), "camel", 15);
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &root));
    for (int reader = 0; reader < READERS; reader++) {
        const char *accepted = "*";
        struct rig r;
        rig_init(&r, "bytes", T);
        rig_add(&r, all, 1);
        r.options.reader = reader, r.options.num_readers = READERS;
        struct loader *l = rig_open(&r);
        enum status st = loader_load(l, root);
        CHECK(st == (reader == 2 || reader == 1 ? STATUS_CONFIG : STATUS_OK)); /* 5 is 1 mod 4 */
        if (st) CHECK_MESSAGE("/2.jsonl: ");
        if (st) CHECK_MESSAGE("/5.jsonl: ");
        loader_close(l);
        r.data.accept_changed = (struct option_list){&accepted, 1};
        l = rig_open(&r);
        CHECK_STATUS(OK, loader_load(l, root));
        loader_close(l);
        rig_release(&r);
    }
    json_free(root);
    text_release(&cursor);
}

TEST(a_copy_of_the_files_elsewhere_is_the_same_data)
{
    const char *one = test_folder(), *two = test_folder();
    struct text cursor = {0};
    write_lines(test_path(one, "a.jsonl"), "llama", 50);
    write_lines(test_path(two, "a.jsonl"), "llama", 50);
    save_after(test_path(one, "a.jsonl"), 5, &cursor);
    CHECK_STATUS(OK, resume(test_path(two, "a.jsonl"), NULL, &cursor));
    text_release(&cursor);
}

TEST(files_that_a_pattern_gained_or_lost_are_named)
{
    const char *folder = test_folder(), *all = test_path(folder, "*.jsonl");
    struct text cursor = {0};
    write_lines(test_path(folder, "a.jsonl"), "a", 50);
    write_lines(test_path(folder, "c.jsonl"), "c", 50);
    save_after(all, 5, &cursor);
    write_lines(test_path(folder, "b.jsonl"), "b", 50);
    CHECK_STATUS(CONFIG, resume(all, NULL, &cursor));
    CHECK_MESSAGE("/b.jsonl: the file is new");
    CHECK_STATUS(OK, resume(all, "b.jsonl", &cursor));
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "b.jsonl")));
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "c.jsonl")));
    CHECK_STATUS(CONFIG, resume(all, NULL, &cursor));
    CHECK_MESSAGE("/c.jsonl: the file was removed");
    CHECK_STATUS(OK, resume(all, "c.jsonl", &cursor));
    text_release(&cursor);
}

TEST(of_many_changes_the_first_ones_are_named_and_the_others_counted)
{
    const char *folder = test_folder(), *all = test_path(folder, "*.jsonl");
    struct text cursor = {0};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 9; i++) {
            char name[32];
            snprintf(name, sizeof name, "%d.jsonl", i);
            write_lines(test_path(folder, name), round ? "new" : "old", 10 + i);
        }
        if (!round) save_after(all, 5, &cursor);
    }
    CHECK_STATUS(CONFIG, resume(all, NULL, &cursor));
    CHECK_MESSAGE("/3.jsonl: ");
    CHECK_MESSAGE("and 5 more changes");
    CHECK_STATUS(OK, resume(all, "*.jsonl", &cursor));
    text_release(&cursor);
}

TEST(a_position_saved_by_an_older_program_is_loaded)
{
    const char *folder = test_folder(), *path = test_path(folder, "a.jsonl");
    struct text cursor = {0};
    write_lines(path, "llama", 50);
    save_after(path, 5, &cursor);
    memcpy(strstr(cursor.data, "source_files"), "another_name", 12);
    memcpy(strstr(cursor.data, "\"tokenizer\""), "\"tokenize_\"", 11);
    CHECK_STATUS(OK, resume(path, NULL, &cursor));
    write_lines(path, "llama", 51);
    CHECK_STATUS(CONFIG, resume(path, NULL, &cursor));
    CHECK_MESSAGE("/a.jsonl: the checkpoint was written with other files");
    text_release(&cursor);
}

/* Loads the position with the tokenizer of that folder. */
static enum status resume_tokenizer(const char *tokenizer, const char *path, const char *accepted,
                                    struct text *save, const struct text *load)
{
    struct rig r;
    enum status st = STATUS_OK;
    rig_init(&r, tokenizer, T);
    rig_add(&r, path, 1);
    r.data.accept_changed = (struct option_list){&accepted, accepted != NULL};
    struct loader *l = rig_open(&r);
    if (save) loader_save(l, &(struct json_writer){.text = save});
    if (load) {
        struct json *root;
        CHECK_STATUS(OK, json_parse(load->data, load->len, "cursor", &root));
        st = loader_load(l, root);
        json_free(root);
    }
    loader_close(l);
    rig_release(&r);
    return st;
}

TEST(a_tokenizer_with_two_ids_swapped_is_refused_unless_accepted)
{
    const char *folder = test_folder(), *path = test_path(folder, "a.jsonl");
    const char *file = test_path(folder, "tokenizer.json");
    struct tokenizer *bytes;
    struct text json = {0}, cursor = {0};
    write_lines(path, "llama", 50);
    CHECK_STATUS(OK, tokenizer_open(&bytes, "bytes", &(struct tokenizer_config){0}));
    CHECK_STATUS(OK, tokenizer_copy(bytes, folder));
    tokenizer_close(bytes);
    CHECK_STATUS(OK, resume_tokenizer(folder, path, NULL, &cursor, NULL));
    CHECK_STATUS(OK, resume_tokenizer(folder, path, NULL, NULL, &cursor));
    CHECK_STATUS(OK, file_read(file, 1 << 20, &json));
    char *a = strstr(json.data, "\"a\":"), *b = strstr(json.data, "\"b\":");
    CHECK(a && b);
    a[1] = 'b', b[1] = 'a';
    CHECK_STATUS(OK, file_write(file, json.data, json.len));
    CHECK_STATUS(CONFIG, resume_tokenizer(folder, path, NULL, NULL, &cursor));
    CHECK_MESSAGE("/tokenizer.json: the tokenizer's file is not the one that was used before");
    CHECK_MESSAGE("data.accept_changed = [\"tokenizer\"]");
    CHECK_STATUS(OK, resume_tokenizer(folder, path, "tokenizer", NULL, &cursor));
    text_release(&json), text_release(&cursor);
}

/* Sources without names: the same two in another order, one of them alone, and with a third. */
TEST(sources_without_names_are_found_by_their_content)
{
    const char *folder = test_folder(), *paths[3];
    static const int orders[][4] = {{2, 1, 0}, {1, 1}, {1, 0}, {3, 0, 2, 1}, {3, 2, 1, 0}};
    struct text cursor = {0};
    struct rows first = {0};
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c.jsonl", 'a' + i);
        paths[i] = test_path(folder, name);
        write_lines(paths[i], i == 0 ? "llama" : i == 1 ? "camel" : "sheep", 60);
    }
    for (size_t k = 0; k <= sizeof orders / sizeof *orders; k++) {
        struct rig r;
        struct rows got = {0};
        struct json *json;
        rig_init(&r, "bytes", T);
        for (int i = 0; k ? i < orders[k - 1][0] : i < 2; i++)
            rig_add(&r, paths[k ? orders[k - 1][i + 1] : i], 1);
        struct loader *l = rig_open(&r);
        if (k) {
            CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &json));
            CHECK_STATUS(OK, loader_load(l, json));
            json_free(json);
            /* no token of the rows before is read again, except the overlapping ones */
            rows_read(&got, l, T, 1, 8);
            for (int64_t i = 0; i < got.count; i++)
                for (int64_t j = 0; j < first.count; j++)
                    CHECK(memcmp(got.ids + i * T, first.ids + j * T, T * sizeof *got.ids) != 0);
        } else {
            rows_read(&first, l, T, 1, 12);
            loader_save(l, &(struct json_writer){.text = &cursor});
        }
        rows_release(&got);
        loader_close(l);
        rig_release(&r);
    }
    rows_release(&first);
    text_release(&cursor);
}

TEST(a_source_of_another_column_is_refused_and_of_another_name_begins)
{
    const char *folder = test_folder(), *path = test_path(folder, "a.jsonl");
    struct text cursor = {0};
    struct json *json;
    write_lines(path, "llama", 50);
    save_after(path, 5, &cursor);
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &json));
    for (int named = 0; named < 2; named++) {
        struct rig r;
        rig_init(&r, "bytes", T);
        rig_add(&r, path, 1);
        r.sources[0].column = "title", r.sources[0].name = named ? "titles" : NULL;
        struct loader *l = rig_open(&r);
        enum status st = loader_load(l, json);
        CHECK(st == (named ? STATUS_OK : STATUS_CONFIG));
        if (st) CHECK_MESSAGE("was written with another column");
        loader_close(l);
        rig_release(&r);
    }
    json_free(json);
    text_release(&cursor);
}
