// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "doctor/check.h"

#include <stdio.h>

static const struct usage usage = {
    "doctor",
    {{NULL, {USAGE_OPTIONAL(FOLDER, "FOLDER")}}},
    "Tests this machine: program and libraries, CPU and GPUs, limits, speed, and whether files\n"
    "written to FOLDER (default: .) are durable.  Prints a line per finding: ok, warn or FAIL,\n"
    "with advice.  A FAIL determines the exit code.",
};

enum status command_doctor(int argc, char **argv)
{
    bool json = false;
    const struct flag flags[] = {
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    struct findings f = {0};
    struct text out = {0};
    check_program(&f);
    check_ranks(&f);
    check_load(&f);
    check_processor(&f);
    check_clock(&f);
    check_memory(&f);
    check_limits(&f);
    check_folder(&f, a.num_words ? a.words[0] : ".");
    check_speed(&f);
    check_gpus(&f);
    if (json)
        findings_write_json(&f, &out);
    else
        findings_print(&f, &out);
    fputs(out.data, stdout);
    enum status st = f.first.status ? status_restore(&f.first) : STATUS_OK;
    text_release(&out);
    findings_release(&f);
    return st;
}
