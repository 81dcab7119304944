# Pinline. `make help` lists the targets; sources are found by name, so a new file needs no line here.

# --- Settings: give them on the command line ------------------------------------------------------
BUILD ?= build
MODE ?= release
PREFIX ?= /usr/local
DESTDIR ?=
# A folder with unpacked Debian packages (dpkg -x), for machines where nothing can be installed.
DEPS ?=
# CUDA=0 leaves the GPU out; CUDA_HOME and CUDNN_HOME name other places to look in.
CUDA ?= 1
CUDA_HOME ?= /usr/local/cuda
CUDNN_HOME ?= $(CUDA_HOME)
# TURBO=0 leaves libjpeg-turbo out, DEFLATE=0 libdeflate.
TURBO ?= 1
DEFLATE ?= 1
# Warnings are errors where the project is checked (.ci/run), not where it is used: a newer compiler
# knows more of them.
WERROR ?=
# V=1 prints whole commands.
V ?=
OPT ?= -O2
TEST_JOBS ?= 1
TEST_TIMEOUT ?= 300
# The layers whose tests are built and run.
TEST_LAYERS ?= $(LAYERS)
FUZZ_SECONDS ?= 30
# What `make run` does: a set of images, the training on it, and what the flags are worth for that.
DEMO ?= $(BUILD)/demo
DEMO_SYNTH_FLAGS ?= --overwrite
DEMO_TRAIN_FLAGS ?= --model smallcnn --epochs 8 --overwrite
DEMO_ABLATE_FLAGS ?= --model smallcnn --budget 1m --overwrite

ifeq ($(origin CC),default)
CC := $(if $(shell command -v gcc 2>/dev/null),gcc,$(if $(shell command -v clang 2>/dev/null),clang,cc))
endif
PKG_CONFIG ?= pkg-config
AR ?= ar
CLANG ?= clang
CLANG_FORMAT ?= $(if $(shell command -v clang-format-14 2>/dev/null),clang-format-14,clang-format)
CLANG_TIDY ?= $(if $(shell command -v clang-tidy-14 2>/dev/null),clang-tidy-14,clang-tidy)
VERSION := $(shell cat VERSION 2>/dev/null)

# --- Modes: a tree each, so that changing between them rebuilds nothing ---------------------------
MODES := release debug asan ubsan tsan fuzz
ifeq ($(filter $(MODE),$(MODES)),)
$(error MODE=$(MODE) is unknown; it is one of: $(MODES))
endif
MODE_release := $(OPT) -g
MODE_debug := -O0 -g3
MODE_asan := -O1 -g -fsanitize=address -fno-omit-frame-pointer
MODE_ubsan := -O1 -g -fsanitize=undefined -fno-sanitize-recover=all
MODE_tsan := -O1 -g -fsanitize=thread -DPINLINE_ONE_FILE_TABLE
MODE_fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
ifeq ($(MODE),fuzz)
CC := $(CLANG)
endif
OUT := $(BUILD)/$(MODE)

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
    -Wpointer-arith -Wcast-qual -Wundef -Wwrite-strings -Wformat=2 $(WERROR)
# Contraction is off so that a result does not depend on which compiler fused what; no errno and no
# floating-point traps, because nothing reads them and loops vectorise without.
CODE := -std=c17 -pthread -ffp-contract=off -fno-math-errno -fno-trapping-math

# --- Libraries: pkg-config where it knows them, their usual names otherwise -----------------------
TRIPLET := $(shell $(CC) -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
ifneq ($(DEPS),)
DEPS_INCLUDE := $(wildcard $(DEPS)/usr/include $(DEPS)/usr/include/$(TRIPLET) \
    $(DEPS)/usr/include/$(TRIPLET)/openblas-pthread $(DEPS)/usr/include/libpng16)
DEPS_LIB := $(wildcard $(abspath $(DEPS)/usr/lib $(DEPS)/usr/lib/$(TRIPLET) \
    $(DEPS)/usr/lib/$(TRIPLET)/openblas-pthread))
DEPS_CFLAGS := $(addprefix -isystem ,$(DEPS_INCLUDE))
# The old kind of run path also serves the libraries that these libraries need.
DEPS_LDFLAGS := -Wl,--disable-new-dtags $(foreach dir,$(DEPS_LIB),-L$(dir) -Wl,-rpath,$(dir))
endif
# $(call library_cflags,package) and $(call library_libs,package,fall-back)
library_cflags = $(if $(DEPS),,$(patsubst -I%,-isystem %,$(filter -I%,$(shell $(PKG_CONFIG) --cflags $1 2>/dev/null))))
library_libs = $(if $(DEPS),$2,$(or $(shell $(PKG_CONFIG) --libs $1 2>/dev/null),$2))
# "1" when a header is found.
has_header = $(shell printf '\043include <stdio.h>\n\043include <%s>\n' '$1' | \
    $(CC) $(DEPS_CFLAGS) -E -x c - >/dev/null 2>&1 && echo 1)

LIBRARY_CFLAGS := $(DEPS_CFLAGS) $(call library_cflags,libpng) $(call library_cflags,openblas)
LIBRARY_LIBS := $(call library_libs,libpng,-lpng16 -lz) $(call library_libs,zlib,-lz) \
    $(call library_libs,openblas,-lopenblas)
HAVE_TURBO := $(if $(filter-out 0,$(TURBO)),$(if $(call has_header,jpeglib.h),1,0),0)
ifeq ($(HAVE_TURBO),1)
LIBRARY_LIBS += $(call library_libs,libjpeg,-ljpeg)
endif
HAVE_DEFLATE := $(if $(filter-out 0,$(DEFLATE)),$(if $(call has_header,libdeflate.h),1,0),0)
ifeq ($(HAVE_DEFLATE),1)
LIBRARY_LIBS += $(call library_libs,libdeflate,-ldeflate)
endif
TEST_LIBS = $(call library_libs,check,-lcheck -lsubunit -lrt)

# CUDA counts as there when its headers and libraries are: nothing of it is run to find out.
CUDA_INCLUDES := $(CUDA_HOME)/include $(CUDA_HOME)/targets/x86_64-linux/include $(CUDNN_HOME)/include \
    /usr/include /usr/include/$(TRIPLET)
CUDA_LIB_DIRS := $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib $(CUDA_HOME)/targets/x86_64-linux/lib \
    $(CUDNN_HOME)/lib64 $(CUDNN_HOME)/lib /usr/lib/$(TRIPLET)
find_include = $(firstword $(foreach dir,$(CUDA_INCLUDES),$(if $(wildcard $(dir)/$1),$(dir))))
find_library = $(firstword $(foreach dir,$(CUDA_LIB_DIRS),$(wildcard $(dir)/lib$1.so)) \
    $(foreach dir,$(CUDA_LIB_DIRS),$(wildcard $(dir)/lib$1.so.*)))
ifneq ($(CUDA),0)
CUDA_HEADER_DIRS := $(call find_include,cuda_runtime_api.h) $(call find_include,cublasLt.h) \
    $(call find_include,cudnn.h)
CUDA_LIBRARIES := $(call find_library,cudart) $(call find_library,cublasLt) $(call find_library,cudnn)
endif
HAVE_CUDA := $(if $(and $(filter 3,$(words $(CUDA_HEADER_DIRS))),$(filter 3,$(words $(CUDA_LIBRARIES)))),1,0)
CUDA_CFLAGS := $(addprefix -isystem ,$(filter-out /usr/include,$(sort $(CUDA_HEADER_DIRS))))
comma := ,
CUDA_LIBS := $(CUDA_LIBRARIES) \
    $(foreach dir,$(sort $(dir $(CUDA_LIBRARIES))),-Wl$(comma)-rpath$(comma)$(patsubst %/,%,$(dir)))

DEFINES := -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DPINLINE_VERSION='"$(VERSION)"' \
    -DPINLINE_HAVE_TURBO=$(HAVE_TURBO) -DPINLINE_HAVE_DEFLATE=$(HAVE_DEFLATE) -DPINLINE_HAVE_CUDA=$(HAVE_CUDA)
COMPILE = $(CC) $(CODE) $(MODE_$(MODE)) $(WARNINGS) -I. $(DEFINES) $(LIBRARY_CFLAGS) $(CPPFLAGS) $(CFLAGS)
LINK = $(CC) -pthread $(MODE_$(MODE)) $(CFLAGS) $(LDFLAGS) $(DEPS_LDFLAGS)
LIBS = $(LIBRARY_LIBS) -ldl -lm
# $(call say,verb): a short line instead of the command.
say = $(if $(V),,@printf '  %-8s %s\n' '$1' '$@' && )

# --- Sources --------------------------------------------------------------------------------------
LAYERS := base device models data loader trainer experiments
base_SOURCES := $(wildcard base/*.c)
device_SOURCES := $(wildcard device/*.c device/host/*.c)
models_SOURCES := $(wildcard models/*.c)
data_SOURCES := $(wildcard data/*.c)
loader_SOURCES := $(wildcard loader/*.c)
trainer_SOURCES := $(wildcard trainer/*.c)
experiments_SOURCES := $(wildcard experiments/*.c)
cuda_SOURCES := $(wildcard device/cuda/*.c)

# The layers that a test of each layer is linked with, its own first.
base_BELOW := base
device_BELOW := device base
models_BELOW := models device base
data_BELOW := data base
loader_BELOW := loader data device base
trainer_BELOW := trainer models loader data device base
experiments_BELOW := experiments trainer models loader data device base

archive = $(OUT)/$1.a
objects = $(patsubst %.c,$(OUT)/obj/%.o,$1)
PROGRAM := $(OUT)/pinline
CUDA_MODULE := $(OUT)/pinline_cuda.so
FINAL := $(BUILD)/pinline
WITH_CUDA := $(if $(filter 1,$(HAVE_CUDA)),$(if $(cuda_SOURCES),1))
SUPPORT_SOURCES := $(wildcard tests/support/*.c)
TEST_SOURCES := $(foreach layer,$(TEST_LAYERS),$(wildcard tests/$(layer)/test_*.c))
TEST_PROGRAMS := $(foreach source,$(TEST_SOURCES),$(OUT)/tests/$(basename $(notdir $(source))))
GPU_TEST_SOURCES := $(wildcard tests/gpu/test_*.c)
GPU_TEST_PROGRAMS := $(foreach source,$(GPU_TEST_SOURCES),$(OUT)/tests/gpu/$(basename $(notdir $(source))))
GPU_BENCH_PROGRAMS := $(patsubst tests/gpu/%.c,$(OUT)/tests/gpu/%,$(wildcard tests/gpu/bench_*.c))
FUZZ_SOURCES := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_PROGRAMS := $(foreach source,$(FUZZ_SOURCES),$(BUILD)/fuzz/tests/$(basename $(notdir $(source))))
HEADERS := $(wildcard base/*.h device/*.h device/host/*.h models/*.h data/*.h loader/*.h trainer/*.h \
    experiments/*.h tests/support/*.h) $(if $(filter 1,$(HAVE_CUDA)),$(wildcard device/cuda/*.h))
ALL_C := $(wildcard *.c base/*.[ch] device/*.[ch] device/host/*.[ch] device/cuda/*.[ch] models/*.[ch] \
    data/*.[ch] loader/*.[ch] trainer/*.[ch] experiments/*.[ch] tests/*/*.[ch])
SCRIPTS := setup.sh .ci/run $(wildcard data/*.sh tests/*.sh tests/*/*.sh experiments/*/*.sh)

.PHONY: all run test tests gpu-tests test-gpu layers headers format format-check tidy cppcheck \
    shellcheck fuzz fuzz-programs install uninstall clean help force settings
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:

all: $(if $(filter release,$(MODE)),$(FINAL),$(PROGRAM)) $(if $(WITH_CUDA),$(CUDA_MODULE))

# --- Building -------------------------------------------------------------------------------------
# Objects depend on what they were compiled with: another CC or another flag compiles them again.
$(OUT)/flags: force
	@mkdir -p $(@D)
	@printf '%s\n' "$(subst ",,$(COMPILE) $(CUDA_CFLAGS))" | cmp -s - $@ || \
	    printf '%s\n' "$(subst ",,$(COMPILE) $(CUDA_CFLAGS))" >$@

$(OUT)/obj/device/cuda/%.o: device/cuda/%.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,compile)$(COMPILE) -fPIC $(CUDA_CFLAGS) -MMD -MP -c -o $@ $<

$(OUT)/obj/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,compile)$(COMPILE) -MMD -MP -c -o $@ $<

# An archive is made anew, so that a deleted source leaves no object behind; an empty layer makes an
# empty archive.
define archive_rule
$$(call archive,$1): $$(call objects,$$($1_SOURCES)) $$(OUT)/sources_$1
	@rm -f $$@
	@$$(AR) rcs $$@ $$(filter %.o,$$^)
$$(OUT)/sources_$1: force
	@mkdir -p $$(@D)
	@printf '%s\n' "$$($1_SOURCES)" | cmp -s - $$@ || printf '%s\n' "$$($1_SOURCES)" >$$@
endef
support_SOURCES := $(SUPPORT_SOURCES)
$(foreach layer,$(LAYERS) support,$(eval $(call archive_rule,$(layer))))

# The CUDA device takes base/ and device/ from the program that opens it, so both are linked whole.
WHOLE = -Wl,--export-dynamic -Wl,--whole-archive $(call archive,device) $(call archive,base) \
    -Wl,--no-whole-archive
PROGRAM_ARCHIVES := $(foreach layer,experiments trainer models loader data,$(call archive,$(layer)))

$(PROGRAM): $(OUT)/obj/pinline.o $(PROGRAM_ARCHIVES) $(call archive,device) $(call archive,base)
	$(call say,link)$(LINK) -o $@ $(OUT)/obj/pinline.o $(PROGRAM_ARCHIVES) $(WHOLE) $(LIBS)

$(CUDA_MODULE): $(call objects,$(cuda_SOURCES))
	$(call say,link)$(LINK) -shared -o $@ $^ $(CUDA_LIBS) -lm

$(FINAL): $(PROGRAM) $(if $(WITH_CUDA),$(CUDA_MODULE))
	@ln -sfn release/pinline $@
	@$(if $(WITH_CUDA),ln -sfn release/pinline_cuda.so $(BUILD)/pinline_cuda.so,rm -f $(BUILD)/pinline_cuda.so)

# --- Tests ----------------------------------------------------------------------------------------
define test_rule
$(OUT)/tests/$(basename $(notdir $1)): $(OUT)/obj/$(basename $1).o $(call archive,support) \
        $(foreach layer,$($2_BELOW),$(call archive,$(layer)))
	@mkdir -p $$(@D)
	$$(call say,link)$$(LINK) -o $$@ $(if $(filter test_cuda_%,$(notdir $1)),$$(filter %.o,$$^) \
	    $$(call archive,support) $$(WHOLE),$$(filter %.o %.a,$$^)) $$(TEST_LIBS) $$(LIBS)
endef
# Tests named test_cuda_ open the CUDA device, which takes base/ and device/ from them.
$(filter $(OUT)/tests/test_cuda_%,$(TEST_PROGRAMS)): $(if $(WITH_CUDA),$(CUDA_MODULE))
$(foreach layer,$(LAYERS),$(foreach source,$(wildcard tests/$(layer)/test_*.c),\
    $(eval $(call test_rule,$(source),$(layer)))))

$(OUT)/tests/gpu/%: $(OUT)/obj/tests/gpu/%.o $(call archive,support) $(PROGRAM_ARCHIVES) \
        $(call archive,device) $(call archive,base)
	@mkdir -p $(@D)
	$(call say,link)$(LINK) -o $@ $< $(call archive,support) $(PROGRAM_ARCHIVES) $(WHOLE) $(TEST_LIBS) $(LIBS)

tests: $(TEST_PROGRAMS)
gpu-tests: $(GPU_TEST_PROGRAMS) $(GPU_BENCH_PROGRAMS)

# What does not compile fails its own tests and no others.
test:
	@$(MAKE) --no-print-directory -k all tests || echo "make: some parts do not build; the rest is tested"
	@JOBS=$(TEST_JOBS) TIMEOUT=$(TEST_TIMEOUT) MODE=$(MODE) PINLINE=$(abspath $(PROGRAM)) \
	    sh tests/run.sh $(TEST_PROGRAMS)

test-gpu: all gpu-tests
	@BUILD=$(BUILD) MODE=$(MODE) PINLINE=$(abspath $(PROGRAM)) \
	    TESTS="$(GPU_TEST_PROGRAMS)" bash tests/gpu/run.sh

fuzz:
	@$(MAKE) --no-print-directory MODE=fuzz fuzz-programs
	@for program in $(FUZZ_PROGRAMS); do \
	    name=$${program##*/fuzz_}; found=$(BUILD)/fuzz/corpus/$$name; mkdir -p $$found; \
	    given=; if [ -d tests/corpus/$$name ]; then given=tests/corpus/$$name; fi; \
	    echo "fuzzing $$name for $(FUZZ_SECONDS) s"; \
	    $$program -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
	        -artifact_prefix=$(BUILD)/fuzz/$$name- $$found $$given || exit 1; \
	done

fuzz-programs: $(if $(filter fuzz,$(MODE)),$(FUZZ_PROGRAMS))

$(BUILD)/fuzz/tests/%: $(BUILD)/fuzz/obj/tests/fuzz/%.o $(call archive,support) $(PROGRAM_ARCHIVES) \
        $(call archive,device) $(call archive,base)
	@mkdir -p $(@D)
	$(call say,link)$(LINK) -fsanitize=fuzzer -o $@ $(filter %.o %.a,$^) $(LIBS)

# --- Using ----------------------------------------------------------------------------------------
run: all
	$(FINAL) synth $(DEMO)/images $(DEMO_SYNTH_FLAGS)
	$(FINAL) train --data $(DEMO)/images --out $(DEMO)/run $(DEMO_TRAIN_FLAGS)
	$(FINAL) ablate --data $(DEMO)/images --out $(DEMO)/ablation $(DEMO_ABLATE_FLAGS)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/pinline
	$(if $(WITH_CUDA),install -d $(DESTDIR)$(PREFIX)/lib/pinline)
	$(if $(WITH_CUDA),install -m 755 $(CUDA_MODULE) $(DESTDIR)$(PREFIX)/lib/pinline/pinline_cuda.so)
	$(PROGRAM) man >$(OUT)/pinline.1
	install -m 644 $(OUT)/pinline.1 $(DESTDIR)$(PREFIX)/share/man/man1/pinline.1
	$(PROGRAM) completion >$(OUT)/pinline.bash
	install -m 644 $(OUT)/pinline.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pinline

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/pinline $(DESTDIR)$(PREFIX)/lib/pinline/pinline_cuda.so \
	    $(DESTDIR)$(PREFIX)/share/man/man1/pinline.1 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pinline
	-rmdir $(DESTDIR)$(PREFIX)/lib/pinline 2>/dev/null

# --- Checks ---------------------------------------------------------------------------------------
layers:
	@sh tests/layers.sh

# Each header alone, and twice, as a file of its own.
headers: $(HEADERS:%=$(OUT)/headers/%.ok)
	@echo "headers: $(words $(HEADERS)) compile alone"
$(OUT)/headers/%.h.ok: %.h $(wildcard base/*.h device/*.h) $(OUT)/flags
	@mkdir -p $(@D)
	@printf '\043include "$<"\n\043include "$<"\n' | $(COMPILE) $(CUDA_CFLAGS) -fsyntax-only -x c -
	@touch $@

format:
	$(CLANG_FORMAT) -i $(ALL_C)
format-check:
	@$(CLANG_FORMAT) --dry-run -Werror $(ALL_C) && echo "format: $(words $(ALL_C)) files are right"

TIDY_SOURCES ?= $(filter-out $(if $(filter 1,$(HAVE_CUDA)),,device/cuda/%),$(filter %.c,$(ALL_C)))
tidy:
	$(CLANG_TIDY) --quiet $(TIDY_SOURCES) -- $(CODE) -I. $(DEFINES) $(LIBRARY_CFLAGS) $(CUDA_CFLAGS)

cppcheck:
	@cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
	    --inline-suppr --suppress=arrayIndexThenCheck --suppress=invalidFunctionArg --suppress=memleak \
	    --suppress=missingInclude --suppress=missingIncludeSystem -j 2 -I. \
	    -D_GNU_SOURCE -D__GNUC__=12 -DPINLINE_HAVE_TURBO=1 -DPINLINE_HAVE_DEFLATE=1 -DPINLINE_HAVE_CUDA=0 \
	    -DPINLINE_VERSION='""' $(filter-out tests/% device/cuda/%,$(filter %.c,$(ALL_C))) \
	    && echo "cppcheck: nothing found"

shellcheck:
	@shellcheck -e SC2317 $(wildcard $(SCRIPTS)) && echo "shellcheck: $(words $(wildcard $(SCRIPTS))) scripts are clean"

# What was found on this machine and how it is compiled.
settings:
	@printf '%s\n' 'compile: $(subst ','\'',$(COMPILE))' 'libraries: $(LIBS)' \
	    'libjpeg-turbo: $(HAVE_TURBO)' 'libdeflate: $(HAVE_DEFLATE)' 'CUDA: $(HAVE_CUDA) $(CUDA_LIBRARIES)'

clean:
	rm -rf $(BUILD)/pinline $(BUILD)/pinline_cuda.so $(MODES:%=$(BUILD)/%) $(DEMO)

help:
	@printf '%s\n' \
	    'make                 the program, $(FINAL), and the CUDA device where CUDA is found' \
	    'make run             makes a small set of images, trains on it, and measures the flags' \
	    'make test            every test that needs no GPU' \
	    'make test-gpu        the tests that need one' \
	    'make layers          checks that no layer uses one that is not below it' \
	    'make headers         compiles each header alone' \
	    'make format          formats the sources; format-check only looks' \
	    'make tidy            clang-tidy; cppcheck and shellcheck are targets too' \
	    'make fuzz            each fuzzer for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds, with clang' \
	    'make install         program, CUDA device, man page and completion; uninstall takes them away' \
	    'make settings        what was found on this machine' \
	    'make clean           removes what was built' \
	    '' \
	    'MODE=release|debug|asan|ubsan|tsan   CC=gcc|clang   BUILD=$(BUILD)   PREFIX=$(PREFIX)   DESTDIR=' \
	    'CUDA=0   CUDA_HOME=$(CUDA_HOME)   CUDNN_HOME=…   TURBO=0   DEFLATE=0   DEPS=folder of unpacked packages'

-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
