/* Failing MPI calls of one rank of several, and ranks that the program starts itself. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

TEST(two_ranks_survive_failing_mpi_calls)
{
    struct scene s;
    scene_train(&s, 2, "");
    trial_every(&s, "call=mpi,on=MPI_I,rank=1", 0.2);
    trial_every(&s, "call=mpi,on=MPI_I,rank=0,action=kill", 0.2);
}

TEST(two_ranks_that_the_program_starts_survive_faults)
{
    struct scene s;
    scene_train(&s, 1, "--ranks 2 model.dim=128 model.ffn_hidden=512 model.n_layers=4");
    s.name = "train --ranks 2";
    trial_every(&s, "call=file,on=/,rank=0,action=kill", 0.2);
    trial_every(&s, "call=file,on=/,rank=1,action=kill", 0.2);
    trial_every(&s, "call=file,on=checkpoint,rank=1,errno=ENOSPC", 0.2);
    trial_every(&s, "call=malloc,rank=1", 0.2);
}

TEST(four_ranks_survive_faults)
{
    struct scene s;
    scene_train(&s, 4, "training.local_batch_size=1");
    trial_every(&s, "call=file,on=/,rank=2,action=kill", 0.2);
    trial_every(&s, "call=write+fsync,on=checkpoint,rank=3,errno=EIO", 0.1);
    trial_every(&s, "call=mpi,on=MPI_I,rank=2", 0.1);
}
