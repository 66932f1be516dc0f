/* test_install.c -- what `make install` copies, and whether `make uninstall` removes it. */
// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/commands.h"
#include "base/file.h"

#include <unistd.h>

static const char *program(void) { return getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero"; }

/* Runs a shell script whose $1 is the folder and $2 the program's. */
static int shell(const char *script, const char *folder, struct text *out)
{
    char *build = heap_string(program(), strlen(program()) - strlen("/llamero"));
    int code =
        test_run((const char *const[]){"sh", "-c", script, "sh", folder, build, NULL}, out, NULL);
    free(build);
    return code;
}

TEST(installed_files_work_and_uninstall_removes_them)
{
    const char *folder = test_path(test_folder(), "a root");
    struct text out = {0};
    CHECK(shell("tools/install install \"$2\" /opt/llamero \"$1\"", folder, NULL) == 0);
    CHECK(shell("cd \"$1/opt/llamero\" && bin/llamero --version && find . -type f", folder, &out) ==
          0);
    CHECK(!strncmp(out.data, "llamero ", 8));
    static const char *const files[] = {"bin/llamero",
                                        "share/man/man1/llamero.1",
                                        "share/man/man1/llamero-config-import.1",
                                        "share/man/man5/llamero.toml.5",
                                        "share/bash-completion/completions/llamero",
                                        "share/zsh/site-functions/_llamero",
                                        "share/fish/vendor_completions.d/llamero.fish",
                                        "share/llamero/recipes/tiny.toml",
                                        "share/doc/llamero/LICENSE",
                                        "share/doc/llamero/docs/options.md"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) CHECK(strstr(out.data, files[i]));
    for (const struct command *c = commands; c->name; c++) {
        char page[64];
        snprintf(page, sizeof page, "man1/llamero-%s.1\n", c->name);
        CHECK(strstr(out.data, page));
    }
    text_clear(&out);
    CHECK(shell("tools/install uninstall \"$2\" /opt/llamero \"$1\" && find \"$1\" -type f -o "
                "-name '*llamero*' ! -path \"$1/opt/llamero\"",
                folder, &out) == 0);
    CHECK(!out.len);
    CHECK(shell("tools/install install \"$2\" relative \"$1\" 2>&1", folder, &out) == 64);
    CHECK(strstr(out.data, "PREFIX=relative: must be an absolute path"));
    text_release(&out);
}

/* groff warns about an unknown request or a character that it cannot print. */
TEST(groff_formats_the_man_pages_without_a_warning)
{
    struct text out = {0};
    if (shell("command -v groff", ".", NULL)) skip();
    CHECK(shell("for page in '--help=man' 'train --help=man' 'convert --help=man' "
                "'config document --man'; do \"$2/llamero\" $page | "
                "groff -man -Tascii -ww -z 2>&1; done",
                ".", &out) == 0);
    CHECK(!out.len);
    text_release(&out);
}

/* As readline calls it: the words are split at '=' too, and the last is to be completed. */
static const char bash_calls[] =
    ". packaging/completions/llamero.bash\n"
    "PATH=$1:$PATH HOME=$2 COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'\n"
    "complete_line() {\n"
    "    COMP_LINE=$1 COMP_POINT=${#1}; shift\n"
    "    COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMPREPLY=()\n"
    "    _llamero\n"
    "    (IFS=,; echo \"${COMPREPLY[*]}\")\n"
    "}\n"
    "complete_line 'llamero tra' llamero tra\n"
    "complete_line 'llamero train objective.name=' llamero train objective.name =\n"
    "complete_line 'llamero train objective.name=m' llamero train objective.name = m\n"
    "complete_line 'llamero train --objective.name m' llamero train --objective.name m\n"
    "complete_line 'llamero train x --training.st' llamero train x --training.st\n"
    "complete_line '~/bin/llamero plot x --sv' '~/bin/llamero' plot x --sv\n"
    "complete_line '/no/such/llamero conf' /no/such/llamero conf\n"
    "complete_line 'llamero check packaging/comp' llamero check packaging/comp\n";

static const char bash_offers[] = "train\n"
                                  "causal,masked,diffusion\n"
                                  "masked\n"
                                  "masked\n"
                                  "--training.steps=\n"
                                  "--svg\n"
                                  "config\n"
                                  "packaging/completions\n";

TEST(bash_completes_commands_keys_and_values)
{
    const char *home = test_folder(), *bin = test_path(home, "bin");
    struct text out = {0};
    char link[4096];
    CHECK_STATUS(OK, file_make_dirs(bin));
    CHECK(realpath(program(), link));
    CHECK(!symlink(link, test_path(bin, "llamero")));
    CHECK(test_run((const char *const[]){"bash", "-c", bash_calls, "bash", bin, home, NULL}, &out,
                   NULL) == 0);
    if (strcmp(out.data, bash_offers) != 0) print_error("%s", out.data);
    CHECK(!strcmp(out.data, bash_offers));
    text_release(&out);
}
