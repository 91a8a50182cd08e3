/* The program's version, stated by plimsolld --version, plimsoll --version and User-Agent. */
#ifndef CONFIG_VERSION_H
#define CONFIG_VERSION_H

#define PLIMSOLL_VERSION "0.1.0"

#endif
