// SPDX-License-Identifier: Apache-2.0
#include "base/pty.h"
#include "test.h"

#include "base/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char ENTER[] = "\033[?1049h", LEAVE[] = "\033[?1049l";

static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0) abort();
}

/* How the raw job ends, by the key that is typed. */
static int raw_job(void *screen)
{
    if (terminal_is_raw() || terminal_enter_raw() || !terminal_is_raw()) return 98;
    if (screen) terminal_enter_screen();
    say("ready");
    for (;;) {
        int key = terminal_read_byte(-1);
        if (key == 'r') return 3; /* through exit */
        if (key == 'e') exit(4);
        if (key == 'q') quick_exit(7);
        if (key == 'a') abort();
        if (key == 'w') {
            raise(SIGWINCH); /* arrives before the next wait */
            continue;
        }
        if (key == 'z') terminal_suspend();
        if (key == 3) say("ctrl-c");
        if (key == 's') terminal_leave_screen();
        if (key == 'l') {
            terminal_leave_raw();
            say("left");
            return 5;
        }
        if (terminal_has_changed()) say("changed");
        if (key == TERMINAL_END) return 6;
    }
}

static void start(struct pty *p, bool screen)
{
    pty_start(p, raw_job, screen ? p : NULL);
    CHECK(pty_shows(p, 0, "ready") && pty_becomes_raw(p, true));
    CHECK((strstr(p->seen.data, ENTER) != NULL) == screen);
}

TEST(raw_mode_ends_however_the_process_ends)
{
    static const struct {
        const char *key;
        int code;
    } ways[] = {{"r", 3}, {"e", 4}, {"l", 5}, {"q", 7}, {"a", 128 + SIGABRT}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct pty p;
        bool raw;
        start(&p, i % 2 == 1);
        pty_type(&p, ways[i].key);
        CHECK(pty_finish(&p, &raw) == ways[i].code);
        CHECK(!raw);
        CHECK((strstr(p.seen.data, LEAVE) != NULL) == (i % 2 == 1));
        text_release(&p.seen);
    }
}

TEST(signals_that_end_the_process_restore_the_terminal_first)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGFPE};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct pty p;
        bool raw;
        start(&p, true);
        CHECK(!kill(p.job, signals[i]));
        CHECK(pty_finish(&p, &raw) == 128 + signals[i]);
        CHECK(!raw && strstr(p.seen.data, LEAVE));
        text_release(&p.seen);
    }
}

TEST(a_stopped_process_lends_the_terminal_and_takes_it_again)
{
    struct pty p;
    bool raw;
    start(&p, true);
    for (int i = 0; i < 3; i++) {
        size_t from = p.seen.len;
        if (i < 2)
            pty_type(&p, "z");
        else
            CHECK(!kill(p.job, SIGTSTP));
        CHECK(pty_is_stopped(&p) && pty_becomes_raw(&p, false));
        CHECK(pty_shows(&p, from, LEAVE));
        from = p.seen.len;
        CHECK(!kill(p.job, SIGCONT));
        CHECK(pty_shows(&p, from, ENTER) && pty_shows(&p, from, "changed"));
        CHECK(pty_becomes_raw(&p, true));
    }
    pty_type(&p, "r");
    CHECK(pty_finish(&p, &raw) == 3 && !raw);
    text_release(&p.seen);
}

TEST(keys_arrive_raw_and_a_new_size_is_noticed)
{
    const struct winsize size = {.ws_row = 50, .ws_col = 200};
    struct pty p;
    bool raw;
    start(&p, false);
    CHECK(terminal_size(p.fd).rows == 24 && terminal_size(p.fd).columns == 80);
    pty_type(&p, "\003");
    CHECK(pty_shows(&p, 0, "ctrl-c"));
    CHECK(!ioctl(p.fd, TIOCSWINSZ, &size));
    CHECK(pty_shows(&p, 0, "changed"));
    CHECK(terminal_size(p.fd).rows == 50 && terminal_size(p.fd).columns == 200);
    pty_type(&p, "w");
    CHECK(pty_shows(&p, strlen("readyctrl-cchanged"), "changed"));
    pty_type(&p, "r");
    CHECK(pty_finish(&p, &raw) == 3 && !raw);
    CHECK(strlen(p.seen.data) == strlen("readyctrl-cchangedchanged")); /* no echo */
    text_release(&p.seen);
}

TEST(the_screen_can_be_left_before_raw_mode)
{
    struct pty p;
    bool raw;
    start(&p, true);
    pty_type(&p, "s");
    CHECK(pty_shows(&p, 0, LEAVE) && pty_becomes_raw(&p, true));
    pty_type(&p, "l");
    CHECK(pty_finish(&p, &raw) == 5 && !raw);
    CHECK(strstr(p.seen.data, "left") > strstr(p.seen.data, LEAVE));
    text_release(&p.seen);
}

static enum status raw_mode_of_no_terminal(int unused)
{
    (void)unused;
    if (!freopen("/dev/null", "r", stdin)) abort();
    enum status st = terminal_enter_raw();
    return st == STATUS_USAGE && !terminal_is_raw() ? STATUS_OK : STATUS_IO;
}

TEST(raw_mode_requires_a_terminal) { CHECK(!test_in_child(raw_mode_of_no_terminal, 0)); }

TEST(terminal_without_a_name_is_dumb)
{
    setenv("TERM", "xterm", 1);
    CHECK(!terminal_is_dumb());
    setenv("TERM", "dumb", 1);
    CHECK(terminal_is_dumb());
    unsetenv("TERM");
    CHECK(terminal_is_dumb());
}
