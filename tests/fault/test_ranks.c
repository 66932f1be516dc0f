/* Every n-th call of one rank of two that concerns files or memory. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

TEST(two_ranks_survive_a_kill_at_every_file_call_of_a_save)
{
    struct scene s;
    scene_train(&s, 2, "");
    trial_every(&s, "call=file,on=checkpoint,rank=0,action=kill", 0.2);
    trial_every(&s, "call=file,on=checkpoint,rank=1,action=kill", 0.2);
}

TEST(two_ranks_survive_a_kill_at_any_file_call)
{
    struct scene s;
    scene_train(&s, 2, "");
    trial_every(&s, "call=file,on=/,rank=0,action=kill", 0.2);
    trial_every(&s, "call=file,on=/,rank=1,action=kill", 0.2);
}

TEST(two_ranks_survive_failing_files_and_memory)
{
    struct scene s;
    scene_train(&s, 2, "");
    trial_every(&s, "call=file,on=checkpoint,rank=0,errno=EIO", 0.2);
    trial_every(&s, "call=file,on=checkpoint,rank=1,errno=ENOSPC", 0.2);
    trial_every(&s, "call=malloc,rank=1", 0.2);
}
