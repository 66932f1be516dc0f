/* shell_command.h -- the effects of a simple command: builtins, and commands that start training or
 * run another script.  No program is started. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell_condition.h"

/* Shell code that a command runs: of eval, bash -c, or a script file. */
struct shell_script {
    struct text bytes; /* data NULL: none */
    char *file;        /* NULL: eval or bash -c, which continue in the same script */
    struct shell_words arguments;
    bool is_process; /* of bash: `exit` ends it alone */
    bool is_exec;    /* the current script ends with this command */
};
void shell_command_release(struct shell_script *script);

/* Applies a command's effects.  *script: the code that the caller must follow next. */
enum status shell_command_run(struct shell *s, const struct shell_words *w, int line,
                              enum shell_result *result, struct shell_script *script);
