request.o: backends/e2b/request.c backends/e2b/request.h \
 backends/e2b/limits.h records/ledger_entry.h core/buffer.h
backends/e2b/request.h:
backends/e2b/limits.h:
records/ledger_entry.h:
core/buffer.h:
