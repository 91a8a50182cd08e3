upload.o: backends/e2b/upload.c backends/e2b/upload.h \
 backends/e2b/limits.h records/ledger_entry.h core/buffer.h core/sha256.h \
 core/random.h core/utf8.h
backends/e2b/upload.h:
backends/e2b/limits.h:
records/ledger_entry.h:
core/buffer.h:
core/sha256.h:
core/random.h:
core/utf8.h:
