-- The files that a connection has open: (number, name, path). Reads nothing, takes no lock.
PRAGMA database_list
