package cuda

import "samebit/backend/cuda/driver"

// load binds the machine's driver.
func load() (driver.Driver, error) { return nil, driver.ErrNoDriver }
