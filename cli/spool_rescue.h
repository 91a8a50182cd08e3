/* Whole records out of a file of the spool that was set aside. */
#ifndef CLI_SPOOL_RESCUE_H
#define CLI_SPOOL_RESCUE_H

/* Writes those that are not marked as taken into a new file of the spool beside `path`, which is renamed to say so.
 * Only what is exactly as it was written counts as a record. Returns the exit status, with everything told. */
int spool_rescue(const char *path);

#endif
