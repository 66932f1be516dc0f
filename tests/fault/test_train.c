/* Every n-th call of a run on one rank. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

TEST(train_survives_a_kill_at_every_file_call)
{
    struct scene s;
    scene_train(&s, 1, "");
    trial_every(&s, "call=file,action=kill", 1);
}

TEST(train_survives_kills_while_it_deletes_old_checkpoints)
{
    struct scene s;
    scene_train(&s, 1, "checkpoint.keep_latest_k=2 checkpoint.interval=1");
    trial_every(&s, "call=rename+unlink+fsync,on=checkpoint,action=kill", 0.3);
}

TEST(train_survives_a_full_disk)
{
    struct scene s;
    scene_train(&s, 1, "");
    trial_every(&s, "call=write,on=/,errno=ENOSPC", 0.3);
    trial_every(&s, "call=write,on=/,errno=ENOSPC,times=0", 0.3);
    trial_every(&s, "call=write+fsync+close,on=checkpoint,errno=EDQUOT", 0.3);
}

TEST(train_survives_failing_file_systems)
{
    struct scene s;
    scene_train(&s, 1, "");
    trial_every(&s, "call=file,on=/,errno=EIO", 1);
    trial_every(&s, "call=open+opendir+readdir+stat,errno=ESTALE", 0.3);
    trial_every(&s, "call=fsync,errno=EIO", 0.3);
    trial_every(&s, "call=open+mkdir+rename+unlink,errno=EROFS", 0.3);
    trial_every(&s, "call=rename+mkdir,errno=EIO,action=after", 0.2);
    trial_every(&s, "call=read+write,on=/,action=short", 0.3);
    trial_every(&s, "call=read+write+open,on=/,errno=EINTR", 0.3);
    trial_every(&s, "call=open,errno=EMFILE,times=0", 0.2);
}

TEST(train_stops_cleanly_when_memory_runs_out)
{
    struct scene s;
    scene_train(&s, 1, "");
    trial_every(&s, "call=malloc", 1);
    trial_every(&s, "call=malloc,times=0", 0.3);
    trial_every(&s, "call=mmap,errno=ENOMEM", 0.2);
}

TEST(train_saves_on_a_signal_at_every_file_call)
{
    struct scene s;
    scene_train(&s, 1, "");
    trial_every(&s, "call=file,action=term", 0.5);
}
