answer.o: backends/e2b/answer.c backends/e2b/answer.h \
 backends/e2b/limits.h records/ledger_entry.h \
 backends/docker/engine_json.h
backends/e2b/answer.h:
backends/e2b/limits.h:
records/ledger_entry.h:
backends/docker/engine_json.h:
