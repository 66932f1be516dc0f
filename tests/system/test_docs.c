// SPDX-License-Identifier: Apache-2.0
#include "system/pages.h"
#include "test.h"

#include "base/file.h"

#include <ctype.h>
#include <limits.h>
#include <unistd.h>

/* Tests a page in a folder of its own; findings has one line for each error. */
struct trial {
    const char *page, *folder;
    struct text findings;
    int tried;
};

/* Makes the folder with tests/system/docs_folder, or copies `stock`; `page` is relative to the
 * repository. */
static struct trial trial_begin(const char *page, const char *stock)
{
    struct trial t = {.page = page, .folder = test_path(test_folder(), "docs")};
    struct text err = {0};
    char repository[PATH_MAX], program[PATH_MAX];
    const char *named = getenv("LLAMERO");
    CHECK(getcwd(repository, sizeof repository));
    CHECK(realpath(named ? named : "build/llamero", program));
    int code;
    if (stock) {
        code = test_run((const char *[]){"cp", "-a", stock, t.folder, NULL}, NULL, &err);
    } else {
        CHECK_STATUS(OK, file_make_dirs(t.folder));
        code = test_run((const char *[]){"sh", "-c", "cd \"$1\" && exec \"$2/$0\" \"$2\" \"$3\"",
                                         "tests/system/docs_folder", t.folder, repository, program,
                                         NULL},
                        NULL, &err);
    }
    if (code) fail_msg("tests/system/docs_folder failed with exit code %d: %s", code, err.data);
    text_release(&err);
    return t;
}

static void add_finding(struct trial *t, const struct page_item *item, const char *what)
{
    text_addf(&t->findings, "%s:%d: %s: %s\n", t->page, item->line, item->text, what);
}

/* Splits a command into words, without quotes and up to a comment; returns their number. */
static int split(char *command, char **words, int most)
{
    int n = 0;
    for (char *at = command; *at && n < most;) {
        at += strspn(at, " \\\n");
        if (!*at || *at == '#') break;
        char quote = *at == '\'' || *at == '"' ? *at++ : 0;
        words[n++] = at;
        at += strcspn(at, quote ? (char[]){quote, 0} : " \n");
        if (*at) *at++ = 0;
    }
    return n;
}

static bool is_ours(const char *word)
{
    return !strcmp(word, "llamero") || !strcmp(word, "build/llamero");
}

/* --- commands that are run --- */

static bool is_shell_variable(const char *word)
{
    return isupper((unsigned char)*word) && strchr(word, '=');
}

static void try_make(struct trial *t, const struct page_item *item, char **words, int n)
{
    struct text makefile = {0}, tests = {0}, rule = {0};
    CHECK_STATUS(OK, file_read("Makefile", UINT64_MAX, &makefile));
    CHECK_STATUS(OK, file_read("tests/rules.mk", UINT64_MAX, &tests));
    text_add(&makefile, tests.data, tests.len);
    for (int i = 1; i < n; i++) {
        text_clear(&rule), text_addf(&rule, "\n%s:", words[i]);
        if (!strchr(words[i], '=') && !strstr(makefile.data, rule.data))
            add_finding(t, item, "unknown make target");
    }
    text_release(&makefile), text_release(&tests), text_release(&rule);
}

static void try_shell(struct trial *t, const struct page_item *item)
{
    struct text out = {0}, err = {0};
    int code = test_run(
        (const char *[]){
            "timeout", "400", "sh", "-c",
            "cd \"$0\" && PATH=$PWD/bin:$PATH HOME=$PWD HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 && "
            "unset XDG_CACHE_HOME HF_HOME HF_HUB_CACHE && "
            "export PATH HOME HF_HUB_OFFLINE OMP_NUM_THREADS && eval \"$1\"",
            t->folder, item->text, NULL},
        &out, &err);
    if (code) {
        text_clear(&out);
        text_addf(&out, "exit code %d: %s", code, err.data);
        add_finding(t, item, out.data);
    }
    text_release(&out), text_release(&err);
}

/* Scripts that need an interpreter or minutes must only exist. */
static void try_tool(struct trial *t, const struct page_item *item, const char *path)
{
    if (!file_exists(path)) add_finding(t, item, "no such file");
}

/* Runs commands that end soon and change nothing outside the folder. */
static void try_command(struct trial *t, const struct page_item *item)
{
    static const char *const allowed[] = {"llamero", "build/llamero", "mpirun", "sbatch", "cat",
                                          "cp",      "mkdir",         "grep",   "tail",   "ls"};
    char *copy = heap_strdup(item->text), *words[64];
    int n = split(copy, words, 64), first = 0;
    bool good = false;
    while (first < n && is_shell_variable(words[first])) first++;
    for (size_t i = 0; first < n && i < sizeof allowed / sizeof *allowed; i++)
        good |= !strcmp(words[first], allowed[i]);
    t->tried++;
    if (first < n && !strcmp(words[first], "make"))
        try_make(t, item, words + first, n - first);
    else if (first + 1 < n && !strcmp(words[first], "python"))
        try_tool(t, item, words[first + 1]);
    else if (first < n && !strncmp(words[first], "tools/", 6))
        try_tool(t, item, words[first]);
    else if (!good)
        add_finding(t, item,
                    "a command that a test cannot run must be in a ```console block, after \"$ \"");
    else if (LLAMERO_MPI || strcmp(words[first], "mpirun") != 0)
        try_shell(t, item);
    free(copy);
}

/* --- names that are only compared with --help and the option tables --- */

static void try_explain(struct trial *t, const struct page_item *item, const char *key)
{
    static struct text known; /* valid keys, each between spaces; never released */
    struct text err = {0}, word = {0};
    text_addf(&word, " %s ", key);
    if (!known.len || !strstr(known.data, word.data)) {
        if (LLAMERO(NULL, &err, "config", "explain", key))
            add_finding(t, item, err.data);
        else
            text_adds(&known, word.data);
    }
    text_release(&err), text_release(&word);
}

/* The length of the option name section.key at the start of a word; 0: none. */
static size_t key_length(const char *word)
{
    static const char *const files[] = {".json", ".jsonl", ".toml",  ".safetensors", ".bin", ".idx",
                                        ".pth",  ".py",    ".model", ".sh",          ".cu"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    static struct text options; /* read once, never released */
    struct text heading = {0};
    size_t section = strspn(word, letters), len;
    if (!section || word[section] != '.') return 0;
    len = section + 1 + strspn(word + section + 1, letters);
    if (len == section + 1 || (word[len] && !strchr(" =", word[len]))) return 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strlen(files[i]) == len - section && !strncmp(files[i], word + section, len - section))
            return 0;
    if (!options.len) CHECK_STATUS(OK, file_read("docs/options.md", UINT64_MAX, &options));
    text_addf(&heading, "\n## [%.*s]\n", (int)section, word);
    if (!strstr(options.data, heading.data)) len = 0;
    text_release(&heading);
    return len;
}

static void try_words(struct trial *t, const struct page_item *item, char **words, int n)
{
    struct text help = {0}, flag = {0};
    bool imports = n > 1 && !strcmp(words[0], "config") && !strcmp(words[1], "import");
    int from = 1;
    if (!n || !islower((unsigned char)*words[0])) return;
    t->tried++;
    if (LLAMERO(&help, NULL, words[0], imports ? words[1] : "--help", "--help")) {
        add_finding(t, item, "no such command");
        n = 0;
    }
    for (int i = from; i < n && !imports; i++) {
        size_t len = key_length(words[i]);
        if (len && words[i][len] == '=') {
            words[i][len] = 0;
            try_explain(t, item, words[i]);
        }
        text_clear(&flag);
        text_addf(&flag, "\n  %.*s ", (int)strcspn(words[i], "=]"), words[i]);
        if (!strncmp(words[i], "--", 2) && words[i][2] && strcmp(words[i], "--help") != 0 &&
            !strstr(help.data, flag.data))
            add_finding(t, item, "--help does not list that flag");
    }
    text_release(&help), text_release(&flag);
}

static void try_shown(struct trial *t, const struct page_item *item)
{
    char *copy = heap_strdup(item->text), *words[64];
    int n = split(copy, words, 64);
    for (int i = 0; i < n; i++)
        if (is_ours(words[i])) {
            try_words(t, item, words + i + 1, n - i - 1);
            break;
        }
    free(copy);
}

static void try_span(struct trial *t, const struct page_item *item)
{
    static const char *const folders[] = {"src/",     "tests/", "docs/",
                                          "configs/", "tools/", "bench/"};
    size_t len = key_length(item->text);
    if (len) {
        char *key = heap_string(item->text, len);
        try_explain(t, item, key);
        free(key);
        t->tried++;
    } else if (!strncmp(item->text, "llamero ", 8) || !strncmp(item->text, "build/llamero ", 14)) {
        try_shown(t, item);
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (!strncmp(item->text, folders[i], strlen(folders[i])) && !strpbrk(item->text, " *") &&
            !file_exists(item->text) && !file_is_dir(item->text))
            add_finding(t, item, "no such file");
}

static void try_toml(struct trial *t, const struct page_item *item)
{
    struct text err = {0};
    const char *path = test_path(t->folder, "block.toml");
    CHECK_STATUS(OK, file_write(path, item->text, strlen(item->text)));
    t->tried++;
    if (LLAMERO(NULL, &err, "config", "show", path)) add_finding(t, item, err.data);
    text_release(&err);
}

static void try_link(struct trial *t, const struct page_item *item)
{
    const char *slash = strrchr(t->page, '/');
    size_t len = strcspn(item->text, "#");
    struct text path = {0};
    if (!len || strstr(item->text, "://")) return;
    text_addf(&path, "%.*s%.*s", slash ? (int)(slash - t->page + 1) : 0, t->page, (int)len,
              item->text);
    if (!file_exists(path.data)) add_finding(t, item, "the link target does not exist");
    text_release(&path);
}

static void try_page(struct trial *t, const char *markdown)
{
    static void (*const by_kind[])(struct trial * t, const struct page_item *item) = {
        [ITEM_COMMAND] = try_command, [ITEM_SHOWN] = try_shown, [ITEM_TOML] = try_toml,
        [ITEM_SPAN] = try_span,       [ITEM_LINK] = try_link,
    };
    struct page p;
    page_read(&p, markdown);
    for (size_t i = 0; i < p.count; i++) by_kind[p.items[i].kind](t, &p.items[i]);
    page_release(&p);
}

/* Not under sanitizers: the commands have tests of their own. */
TEST(docs_have_valid_commands_configurations_and_names)
{
    if (TEST_SLOWED) skip();
    struct trial stock = trial_begin("", NULL);
    struct file_list pages;
    int tried = 0;
    struct text findings = {0}, markdown = {0};
    CHECK_STATUS(OK, file_glob(&pages, "docs/*.md"));
    for (size_t i = 0; i <= pages.count; i++) {
        struct trial t = trial_begin(i < pages.count ? pages.paths[i] : "README.md", stock.folder);
        CHECK_STATUS(OK, file_read(t.page, UINT64_MAX, &markdown));
        try_page(&t, markdown.data);
        text_adds(&findings, t.findings.len ? t.findings.data : "");
        tried += t.tried;
        text_release(&t.findings);
    }
    char *rest = findings.data; /* cmocka truncates long messages */
    for (char *line; rest && (line = strtok_r(rest, "\n", &rest));) print_error("%.900s\n", line);
    CHECK(!findings.len);
    CHECK(tried > 100);
    text_release(&findings), text_release(&markdown);
    file_list_release(&pages);
}

TEST(docs_index_links_every_page)
{
    struct text index = {0}, link = {0};
    struct file_list pages;
    CHECK_STATUS(OK, file_read("docs/README.md", UINT64_MAX, &index));
    CHECK_STATUS(OK, file_glob(&pages, "docs/*.md"));
    CHECK(pages.count > 20);
    for (size_t i = 0; i < pages.count; i++) {
        const char *name = strrchr(pages.paths[i], '/') + 1;
        text_clear(&link), text_addf(&link, "](%s", name);
        if (strcmp(name, "README.md") != 0 && !strstr(index.data, link.data))
            fail_msg("docs/README.md has no link to %s", name);
    }
    text_release(&index), text_release(&link);
    file_list_release(&pages);
}

TEST(readme_has_at_most_120_lines)
{
    struct text readme = {0};
    int lines = 0;
    CHECK_STATUS(OK, file_read("README.md", UINT64_MAX, &readme));
    for (const char *at = readme.data; (at = strchr(at, '\n')); at++) lines++;
    CHECK(lines > 0);
    CHECK(lines <= 120);
    text_release(&readme);
}

TEST(docs_test_finds_invalid_commands_configurations_and_names)
{
    static const char *const cases[][2] = {
        {"```sh\nbuild/llamero plan configs/tiny.toml training.dataset_path=text.txt\n```\n", NULL},
        {"```sh\nbuild/llamero plan configs/none.toml\n```\n", "exit code 66"},
        {"```sh\n\n# a remark\nllamero \\\n  plan --rank=2\n```\n", "docs/made.md:4: llamero"},
        {"```sh\nA=1 reboot\n```\n", "```console"},
        {"```sh\nmake\nmake teste\n```\n", "docs/made.md:3: make teste: unknown make"},
        {"```sh\npython tools/none.py x\ntools/demo\n```\n", "docs/made.md:2: python"},
        {"```console\n$ sbatch x\n$ srun -n 2 llamero train --silent a.toml\n```\n", "that flag"},
        {"```console\n$ llamero train x training.stepz=1\nllamero --no\n```\n", "training.steps?"},
        {"See `llamero plan --ranks 4`, `llamero COMMAND --help` and `metrics.jsonl`.\n", NULL},
        {"See `llamero plam`.\n", "no such command"},
        {"`training.steps = 4`, `training.batch_size`, `trainer.x`, `model.a.weight`\n", NULL},
        {"`training.step = 4`\n", "did you mean training.steps"},
        {"| `training.theirs` | `training.steps` |\n", NULL},
        {"| `training.theirs` | `training.ours` |\n", "training.ours"},
        {"See `src/base/none.c`.\n", "no such file"},
        {"[there](options.md#data) and [there](none.md)\n", "docs/made.md:1: none.md: the link"},
        {"```toml\n[training]\nsteps = \"a\"\n```\n", "training.steps"},
    };
    struct trial stock = trial_begin("docs/made.md", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial t = {.page = stock.page, .folder = stock.folder};
        try_page(&t, cases[i][0]);
        const char *got = t.findings.len ? t.findings.data : "";
        if (cases[i][1] ? !strstr(got, cases[i][1]) : *got != 0)
            fail_msg("%sexpected: %s\ngot: %s", cases[i][0], cases[i][1], got);
        text_release(&t.findings);
    }
}
