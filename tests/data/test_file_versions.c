// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "data/file_versions.h"

static void add_file(struct file_versions *v, const char *folder, const char *name,
                     const char *content)
{
    const char *path = test_path(folder, name);
    CHECK_STATUS(OK, file_write(path, content, strlen(content)));
    file_versions_add(v, path);
    CHECK_STATUS(OK, file_versions_sample(&v->files[v->count - 1]));
}

/* Files of one letter each, in a folder of their own. */
static struct file_versions versions_of(const char *letters)
{
    struct file_versions v = {0};
    const char *folder = test_folder();
    for (; *letters; letters++) add_file(&v, folder, (char[]){*letters, 0}, (char[]){*letters, 0});
    return v;
}

/* The changes from one set of files to another: "+b" is new, "-b" was removed, "b>c". */
static void check_changes(const char *from, const char *to, const char *want)
{
    struct file_versions before = versions_of(from), now = versions_of(to);
    struct text got = {0};
    size_t count;
    struct file_change *changes = file_versions_compare(&before, &now, &count);
    text_adds(&got, "");
    for (size_t i = 0; i < count; i++) {
        const struct file_version *a = changes[i].before, *b = changes[i].now;
        char old = a ? a->path[strlen(a->path) - 1] : '+',
             new = b ? b->path[strlen(b->path) - 1] : '-';
        text_addf(&got, !a ? "+%c " : !b ? "-%c " : "%c>", !a ? new : old);
        if (a && b) text_addf(&got, "%c ", new);
    }
    if (strcmp(got.data, want) != 0)
        fail_msg("%s to %s: \"%s\" instead of \"%s\"", from, to, got.data, want);
    free(changes);
    text_release(&got);
    file_versions_release(&before), file_versions_release(&now);
}

TEST(file_versions_distinguish_new_removed_and_changed_files)
{
    static const char *const cases[][3] = {
        {"", "", ""},
        {"abc", "abc", ""},
        {"abc", "abxc", "+x "},
        {"abc", "xabc", "+x "},
        {"abc", "abcx", "+x "},
        {"abc", "ac", "-b "},
        {"abc", "bc", "-a "},
        {"abc", "ab", "-c "},
        {"abc", "axc", "b>x "},
        {"abc", "", "-a -b -c "},
        {"", "ab", "+a +b "},
        {"ab", "ba", "+b -b "},
        {"abc", "xyz", "a>x b>y c>z "},
        {"abcd", "bxd", "-a c>x "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_changes(cases[i][0], cases[i][1], cases[i][2]);
}

TEST(a_copy_under_another_name_is_the_same_version)
{
    struct file_versions before = {0}, now = {0};
    size_t count;
    add_file(&before, test_folder(), "a.txt", "content");
    add_file(&now, test_folder(), "b.txt", "content");
    free(file_versions_compare(&before, &now, &count));
    CHECK(count == 0);
    file_versions_release(&before), file_versions_release(&now);
}

static void check_description(const char *content, const char *want)
{
    struct file_versions before = {0}, now = {0};
    struct text said = {0};
    size_t count;
    const char *folder = test_folder();
    add_file(&before, folder, "a.txt", "content");
    add_file(&now, folder, "a.txt", content);
    struct file_change *changes = file_versions_compare(&before, &now, &count);
    CHECK(count == 1 && strstr(file_versions_path_of(changes), "/a.txt"));
    file_versions_describe(changes, &said);
    if (!strstr(said.data, want)) fail_msg("\"%s\" is not in: %s", want, said.data);
    free(changes);
    text_release(&said);
    file_versions_release(&before), file_versions_release(&now);
}

TEST(a_change_of_size_and_one_of_content_are_described)
{
    check_description("longer content", "/a.txt: the file has 14 bytes, it had 7");
    check_description("CONTENT",
                      "/a.txt: the content of the file has changed; it still has 7 bytes");
}

static void write_json(const struct file_versions *v, struct text *out)
{
    struct json_writer w = {.text = out};
    json_begin_object(&w, NULL, JSON_INLINE);
    file_versions_write(v, "files", &w);
    json_end_object(&w);
    json_finish(&w);
}

static enum status read_json(const struct text *t, struct file_versions *v)
{
    struct json *root;
    CHECK_STATUS(OK, json_parse(t->data, t->len, "test", &root));
    enum status st = file_versions_read(v, json_get(root, "files"));
    json_free(root);
    return st;
}

TEST(file_versions_read_what_they_wrote)
{
    struct file_versions v = versions_of("abc"), back = {0};
    struct text json = {0};
    size_t count;
    write_json(&v, &json);
    CHECK_STATUS(OK, read_json(&json, &back));
    free(file_versions_compare(&v, &back, &count));
    CHECK(count == 0 && back.count == 3);
    for (size_t i = 0; i < 3; i++) {
        CHECK(!strcmp(v.files[i].path, back.files[i].path));
        CHECK(v.files[i].modified_s == back.files[i].modified_s && v.files[i].modified_s > 0);
    }
    text_release(&json);
    file_versions_release(&v), file_versions_release(&back);
}

TEST(file_versions_reject_damaged_json)
{
    static const char *const damaged[] = {
        "{\"files\": {}}",
        "{\"files\": [7]}",
        "{\"files\": [{\"path\": \"a\", \"bytes\": 1, \"modified\": 1}]}",
        "{\"files\": [{\"path\": \"a\", \"bytes\": -1, \"modified\": 1, \"hash\": \"\"}]}",
        "{\"files\": [{\"path\": \"a\", \"bytes\": 1, \"modified\": 1, \"hash\": \"12\"}]}",
        "{\"files\": [{\"path\": \"a\", \"bytes\": 1, \"modified\": 1, "
        "\"hash\": \"00000000000000zz\"}]}",
    };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct file_versions v = {0};
        const struct text json = {.data = (char *)(uintptr_t)damaged[i], .len = strlen(damaged[i])};
        CHECK_STATUS(DATA, read_json(&json, &v));
        file_versions_release(&v);
    }
}

TEST(a_file_that_is_missing_has_no_version)
{
    struct file_versions v = {0};
    file_versions_add(&v, test_path(test_folder(), "none"));
    CHECK_STATUS(MISSING, file_versions_sample(v.files));
    CHECK(!v.files[0].is_sampled);
    file_versions_release(&v);
}
