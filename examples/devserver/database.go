package devserver

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
	sqliteschema "go.temporal.io/server/schema/sqlite"
)

// databaseConfig is how the server reaches its SQLite database, in the server's own words.
type databaseConfig = *config.SQL

// databaseCount numbers the databases of this process.
var databaseCount atomic.Int64

// openDatabase makes sure that the database has its tables and the namespaces. Namespaces that are in the
// database before the server starts need no wait for its caches.
func openDatabase(file string, namespaces []string) (databaseConfig, error) {
	number := strconv.FormatInt(databaseCount.Add(1), 10)
	database := &config.SQL{PluginName: sqliteplugin.PluginName}
	if file == "" {
		database.DatabaseName = "devserver-" + number
		database.ConnectAttributes = map[string]string{"mode": "memory", "cache": "shared"}
	} else {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return nil, fmt.Errorf("database file %q: %w", file, err)
		}
		// The name goes into a URI, in which an unescaped "?" would end the path.
		database.DatabaseName = (&url.URL{Path: absolute}).EscapedPath()
		database.ConnectAttributes = map[string]string{
			"mode": "rwc",
			// With a write-ahead log a commit need not wait for the disk, which makes a workflow
			// step about five times as fast. A killed process loses nothing; a machine that loses
			// power may lose the last steps.
			"journal_mode": "wal",
			"synchronous":  "normal",
			// The plugin keeps connections by name and attributes until the process ends. A number,
			// which SQLite ignores, makes it open the file that is there now and not one that has
			// been deleted since.
			"setup": number,
		}
		if err := createTables(database); err != nil {
			return nil, fmt.Errorf("open database file %q (want a SQLite file of a Temporal development server, or a path where no file is yet, in a directory that exists): %w", file, err)
		}
	}
	return database, createNamespaces(database, namespaces)
}

// closeDatabase moves what is in the write-ahead log to the database file, so that the file alone holds
// everything. The connection itself stays open: the plugin offers no way to close it.
func closeDatabase(database databaseConfig) error {
	if database.ConnectAttributes["journal_mode"] != "wal" {
		return nil
	}
	admin, err := openAdmin(database)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
}

func openAdmin(database databaseConfig) (sqlplugin.AdminDB, error) {
	return sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, database, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
}

// createTables creates the server's tables in a file that has none.
func createTables(database databaseConfig) error {
	admin, err := openAdmin(database)
	if err != nil {
		return err
	}
	defer admin.Close()
	tables, err := admin.ListTables(database.DatabaseName)
	if err == nil && len(tables) > 0 && !slices.Contains(tables, "namespaces") {
		err = fmt.Errorf("it has tables that are no Temporal server's, such as %q", tables[0])
	}
	if err != nil || len(tables) > 0 {
		return err
	}
	return sqliteschema.SetupSchemaOnDB(admin)
}

func createNamespaces(database databaseConfig, names []string) error {
	configs := make([]*sqliteschema.NamespaceConfig, len(names))
	for i, name := range names {
		var err error
		if configs[i], err = sqliteschema.NewNamespaceConfig(clusterName, name, false, nil); err != nil {
			return fmt.Errorf("namespace %q: %w", name, err)
		}
	}
	if err := sqliteschema.CreateNamespaces(database, configs...); err != nil {
		return fmt.Errorf("create namespaces %q: %w", names, err)
	}
	return nil
}
