// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "doctor/checks.h"

#include <stdio.h>

enum status command_doctor(int argc, char **argv)
{
    bool json = false;
    const struct flag flags[] = {
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "doctor [FOLDER]\n\n"
        "Tests this machine: what the program and the system are, what may be used "
        "of it,\nhow fast it is at best, and whether files written to FOLDER (here: "
        ".) last.\nA line each, ok, warn or FAIL, with what to do about it; any FAIL "
        "is an exit code.",
        0, 1, argc, argv));
    if (a.help) return STATUS_OK;
    if (a.num_settings) FAIL(USAGE, "doctor: \"%s\" sets nothing here", a.settings[0]);
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
        findings_json(&f, &out);
    else
        findings_print(&f, &out);
    fputs(out.data, stdout);
    enum status st = f.first.status ? status_restore(&f.first) : STATUS_OK;
    text_release(&out);
    findings_release(&f);
    return st;
}
