start.o: backends/e2b/start.c backends/e2b/start.h backends/e2b/event.h \
 backends/e2b/limits.h records/ledger_entry.h backends/guest/host.h \
 core/buffer.h backends/e2b/answer.h
backends/e2b/start.h:
backends/e2b/event.h:
backends/e2b/limits.h:
records/ledger_entry.h:
backends/guest/host.h:
core/buffer.h:
backends/e2b/answer.h:
