# Firn's commands. `make` builds build/plugin/ha_firn.so and build/bin/firn; `make help` lists the others.
#
# Whatever a command needs is installed by it (apt packages, through scripts/deps.sh) or fetched (the server's headers,
# scripts/server-source.sh); a machine without the right to install is told in one line which packages to install.

SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif

BUILD := build
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
PLUGIN := $(BUILD)/plugin/ha_firn.so
CORE := $(TARGET)/release/libfirn_capi.a
TOOL := $(BUILD)/bin/firn

SOURCES := $(sort $(wildcard mariadb/*.cc))
OBJECTS := $(SOURCES:mariadb/%.cc=$(BUILD)/obj/%.o)

# The server's headers are system headers here: their warnings are not ours to mend. gen goes first: it holds the
# configuration of the server that is installed.
SRC := $(BUILD)/server-src
GEN := $(BUILD)/gen
SERVER_INCLUDES := $(addprefix -isystem ,$(GEN) $(SRC)/include $(SRC)/sql $(SRC)/libmariadb/include \
  $(SRC)/wsrep-lib/include $(SRC)/wsrep-lib/wsrep-API/v26 /usr/include/mariadb)
CXXFLAGS ?= -O2 -g1
override CXXFLAGS += -std=gnu++17 -fPIC -fno-strict-aliasing -ffunction-sections -Wall -Wextra -Werror
CPPFLAGS += -DMYSQL_DYNAMIC_PLUGIN -DMYSQL_SERVER -DHAVE_CONFIG_H -DDBUG_OFF -MMD -MP \
  -Imariadb -Icrates/firn-capi/include $(SERVER_INCLUDES)
# What the loader looks up is exported, nothing else; the server's own symbols are resolved when it loads the plugin.
# libmysqlservices holds the pointers that the loader fills in.
# UNINSTALL must not unload the library (nodelete): at the end of a thread that has used the core's allocator, and of a
# thread that hangs in a file operation, its code runs.
LDFLAGS += -shared -Wl,-z,nodelete -Wl,--version-script=mariadb/ha_firn.map -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now
# What is set in the environment is exported with what is added here; jemalloc's configure, which cargo runs, must see
# neither.
unexport CPPFLAGS CXXFLAGS LDFLAGS LDLIBS
# The server has loaded the system's OpenSSL already.
LDLIBS += -lmysqlservices -lssl -lcrypto -lpthread -ldl -lm

.PHONY: all help prepare demo demo-pool stop test mtr frameworks soak bench bench-budgets bench-steady bench-sql bench-large lab lab-rocksdb lab-test lab-results lab-proofs lint format install uninstall deb clean FORCE

all: $(PLUGIN) $(TOOL)

help:
	@echo 'make          build $(PLUGIN) and $(TOOL)'
	@echo 'make demo-pool  build, read from a slow disk without and with a memory pool, print a table'
	@echo 'make demo     build, start a private server in ./run, compare InnoDB and FIRN, print a table'
	@echo 'make stop     stop the private server'
	@echo 'make test     run every test'
	@echo 'make mtr      the server'\''s own tests on FIRN, beside kept results: GROUPS="storage_engine engines innodb rpl tables"'
	@echo 'make soak     what concurrent sessions see, judged, for MINUTES=30 at each isolation level'
	@echo 'make frameworks  the tests of Django, SQLAlchemy and Alembic on InnoDB and on FIRN, compared; convert schemas of applications'
	@echo 'make lint     formatting and lints of Rust, C++ and Python'
	@echo 'make bench    the core beside RocksDB and fjall, some ten minutes; FULL=1: more engines, YCSB, 20 million keys'
	@echo 'make bench-budgets  what single calls of the C ABI cost'
	@echo 'make bench-steady   updates at full speed for MINUTES=20: stalls, space, memory'
	@echo 'make bench-sql      stock sysbench on InnoDB and on FIRN'
	@echo 'make bench-large    loads, one huge transaction, large values beside InnoDB and MyRocks: ROWS=1000000'
	@echo 'make lab      the benchmark lab, .venv-lab/bin/firn-lab (docs/lab.md); lab-rocksdb: MyRocks for it; lab-test: its tests'
	@echo 'make lab-results    its quick run, InnoDB, FIRN and MyRocks, fifteen minutes, and the report in docs/results/quick'
	@echo 'make lab-proofs     what it can tell apart: InnoDB beside itself, a slower build; 100 minutes, into docs/results/proofs'
	@echo 'make install  put the plugin and firn.cnf where the installed server looks, firn in /usr/local/bin (as root)'
	@echo 'make deb      build the Debian package mariadb-plugin-firn in $(BUILD)'

prepare:
	@scripts/deps.sh build
	@scripts/server-source.sh

$(CORE): FORCE | prepare
	@echo '==> building the core (cargo build --release)'
	@$(CARGO) build --release -p firn-capi -p firn-cli

# Rewritten only when the server or its source changes; then all of mariadb/ is compiled anew.
$(GEN)/.wanted: | prepare ;

$(BUILD)/obj/%.o: mariadb/%.cc Makefile $(GEN)/.wanted | prepare $(CORE)
	@mkdir -p $(@D)
	@echo '==> compiling $<'
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

$(PLUGIN): $(OBJECTS) $(CORE) mariadb/ha_firn.map
	@mkdir -p $(@D)
	@echo '==> linking $@'
	@$(CXX) $(LDFLAGS) -o $@ $(OBJECTS) $(CORE) $(LDLIBS)
	@scripts/check-symbols.sh $@

# Built with the core, whose file does not change where the tool alone does.
$(TOOL): $(CORE) FORCE
	@mkdir -p $(@D)
	@cmp -s $(TARGET)/release/firn $@ || install -m 755 $(TARGET)/release/firn $@

# For tests/collations/run only.
$(BUILD)/check/firn_collation_check.so: tests/collations/check.cc mariadb/collation.cc $(CORE)
	@mkdir -p $(@D)
	@echo '==> linking $@'
	@$(CXX) $(CPPFLAGS) $(CXXFLAGS) -shared -Wl,--gc-sections -o $@ $^ $(LDLIBS)

demo:
	@scripts/deps.sh demo
	@$(MAKE) --no-print-directory all
	@scripts/demo.sh

# Reads from a slow disk, without and with a memory pool. Settings: scripts/demo-pool.py --help.
POOL_DEMO ?=
demo-pool:
	@scripts/deps.sh demo test
	@$(MAKE) --no-print-directory all
	@scripts/venv.sh tests/requirements.txt
	@.venv/bin/python scripts/demo-pool.py $(POOL_DEMO)

stop:
	@scripts/server.sh stop

# KEYS, SECONDS_EACH, ENGINES, LINES and the other settings of scripts/bench.sh.
bench:
	@scripts/bench.sh kv

bench-budgets:
	@scripts/bench.sh budgets

bench-steady:
	@scripts/bench.sh steady

bench-sql:
	@scripts/deps.sh demo
	@$(MAKE) --no-print-directory all
	@scripts/bench-sql.sh

ROWS ?= 1000000
bench-large:
	@scripts/deps.sh demo
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory all
	@scripts/venv.sh tests/requirements.txt
	@.venv/bin/python scripts/bench-large.py loads --rows $(ROWS)
	@.venv/bin/python scripts/bench-large.py transaction --rows $(ROWS)
	@.venv/bin/python scripts/bench-large.py values

lab:
	@scripts/deps.sh lab
	@scripts/lab.sh install

lab-rocksdb:
	@scripts/lab.sh rocksdb

lab-test: lab
	@scripts/lab.sh test

lab-results: all lab lab-rocksdb
	@scripts/lab.sh results

lab-proofs: all lab
	@scripts/lab.sh proofs

test:
	@scripts/test.sh

# UPDATE=1 writes the results found into scripts/mtr/expected.
mtr:
	@scripts/deps.sh mtr
	@$(MAKE) --no-print-directory all
	@GROUPS_OF_TESTS="$(GROUPS)" UPDATE="$(UPDATE)" scripts/mtr.sh

frameworks:
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory all
	@scripts/frameworks.sh applications
	@scripts/frameworks.sh

soak:
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory all
	@MINUTES="$(MINUTES)" SEED="$(SEED)" scripts/soak.sh

lint:
	@scripts/lint.sh

format:
	cargo fmt --all
	clang-format -i mariadb/*.cc mariadb/*.h

install: all
	@scripts/install.sh install

uninstall:
	@scripts/install.sh uninstall

deb: all
	@scripts/deps.sh deb
	@scripts/package.sh

# A plugin whose layout check was compiled against the changed headers in VARIANT/gen and VARIANT/sql: for the tests of
# the check (scripts/patch-level-test.sh).
ifdef VARIANT
ABI_CHECK := $(notdir $(basename $(wildcard mariadb/abi_check*.cc)))
VARIANT_OBJECTS := $(ABI_CHECK:%=$(VARIANT)/obj/%.o) $(filter-out $(ABI_CHECK:%=$(BUILD)/obj/%.o),$(OBJECTS))

$(VARIANT)/obj/%.o: mariadb/%.cc
	@mkdir -p $(@D)
	@$(CXX) -isystem $(VARIANT)/gen -isystem $(VARIANT)/sql $(CPPFLAGS) $(CXXFLAGS) -c $< -o $@

$(VARIANT)/ha_firn.so: $(VARIANT_OBJECTS) $(CORE)
	@$(CXX) $(LDFLAGS) -o $@ $(VARIANT_OBJECTS) $(CORE) $(LDLIBS)
endif

clean:
	rm -rf $(BUILD) $(TARGET)

FORCE:

-include $(OBJECTS:.o=.d)
