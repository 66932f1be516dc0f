// SPDX-License-Identifier: Apache-2.0
#include "app/piped_input.h"

#include "test.h"

#include <fcntl.h>
#include <unistd.h>

/* A signal is tested by generate_that_reads_from_a_pipe_ends_at_a_signal. */
TEST(piped_input_is_read_as_it_comes_and_adds_nothing_at_its_end)
{
    struct text t = {0};
    int old = dup(STDIN_FILENO), folder = open("/", O_RDONLY | O_CLOEXEC), ends[2];
    CHECK(old >= 0 && !pipe2(ends, O_CLOEXEC) && dup2(ends[0], STDIN_FILENO) >= 0);
    CHECK(write(ends[1], "one", 3) == 3);
    CHECK_STATUS(OK, piped_input_read(&t));
    CHECK(write(ends[1], " two", 4) == 4 && !close(ends[1]));
    CHECK_STATUS(OK, piped_input_read(&t));
    CHECK_STATUS(OK, piped_input_read(&t));
    CHECK(t.len == 7 && !memcmp(t.data, "one two", 7));
    CHECK(!close(ends[0]) && dup2(folder, STDIN_FILENO) >= 0 && !close(folder));
    CHECK_STATUS(IO, piped_input_read(&t));
    CHECK_MESSAGE("standard input: Is a directory");
    CHECK(dup2(old, STDIN_FILENO) >= 0 && !close(old));
    text_release(&t);
}
