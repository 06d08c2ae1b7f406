package policy

import "strings"

// familySuffixes are what SQLite and its like put beside a database. Taken
// apart from it they are a corrupt one (SQLite, "How To Corrupt", 1.4).
var familySuffixes = [...]string{"-wal", "-shm", "-journal"}

// Family returns the database that the path belongs to, judged by its name
// alone, and whether it is a companion of one. The path of a database is its
// own family.
func Family(path string) (database string, companion bool) {
	for _, s := range familySuffixes {
		if db, ok := strings.CutSuffix(path, s); ok && db != "" && !strings.HasSuffix(db, "/") {
			return db, true
		}
	}
	return path, false
}

// Members returns the paths that go or stay together with the database: itself
// first. Whoever compares a member with the base compares them all; a database
// that moved there while only its -wal changed here is no less torn.
func Members(database string) []string {
	m := []string{database}
	for _, s := range familySuffixes {
		m = append(m, database+s)
	}
	return m
}
