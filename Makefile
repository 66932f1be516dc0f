# Llamero: one Makefile.  `make help` lists the targets; CONTRIBUTING.md explains the rooms.
B      ?= build
CC     ?= cc
ARCH   ?= native
PREFIX ?= /usr/local
OPT    ?= -O3 -g
WARN   := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
MATH   := -ffp-contract=fast -fno-math-errno -fno-trapping-math
LIBS   := -ldnnl -lcjson -lpcre2-8 -lz -lzstd -lm -lpthread
VERSION := 0.1.0
CFLAGS  = -DLLAMERO_VERSION=\"$(VERSION)\" -std=c17 -D_GNU_SOURCE $(OPT) -march=$(ARCH) $(MATH) $(WARN) -fopenmp -Isrc -MMD -MP $(EXTRA)

SOURCES := $(sort $(shell find src -name '*.c'))
TESTS   := $(sort $(shell find tests -name '*.c' ! -path 'tests/fuzz/*'))
OBJECTS := $(SOURCES:%.c=$(B)/%.o)
ROOMS   := $(filter-out $(B)/src/app/main.o,$(OBJECTS))

.PHONY: all test clean
all: $(B)/llamero

$(B)/llamero: $(OBJECTS)
	$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

$(B)/tests/run: $(ROOMS) $(TESTS:%.c=$(B)/%.o)
	$(CC) $(CFLAGS) -o $@ $^ $(LIBS) -lcmocka

$(B)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Itests -c -o $@ $<

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<

# `make test T=word` runs the tests whose file or name holds the word.
test: $(B)/llamero $(B)/tests/run
	LLAMERO=$(B)/llamero $(B)/tests/run $(T)

clean:
	rm -rf $(B)

-include $(OBJECTS:.o=.d) $(TESTS:%.c=$(B)/%.d)
