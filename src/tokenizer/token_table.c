// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_table.h"

#include <stdlib.h>

void token_table_release(struct token_table *e)
{
    free(e->tokens), free(e->merges);
    text_release(&e->texts);
    *e = (struct token_table){0};
}
