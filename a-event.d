event.o: backends/e2b/event.c backends/e2b/event.h backends/e2b/limits.h \
 records/ledger_entry.h backends/e2b/answer.h core/protojson.h \
 core/buffer.h core/utf8.h
backends/e2b/event.h:
backends/e2b/limits.h:
records/ledger_entry.h:
backends/e2b/answer.h:
core/protojson.h:
core/buffer.h:
core/utf8.h:
