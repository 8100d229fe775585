package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/helper"
)

func helperCommand() *cobra.Command {
	r := &role{name: "helper"}
	var cfg helper.Config
	var name string
	cmd := &cobra.Command{
		Use: "helper", Short: "lend this device's link to a primary", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, trust, err := r.load(cmd, &cfg, nil)
			if err != nil {
				return err
			}
			h, err := helper.New(cfg, name, key, trust, slog.Default())
			if err != nil {
				return err
			}
			start := time.Now()
			return r.serve(cmd.Context(), h.Run, func(bool) api.Status { return r.describe(key, name, start) })
		},
	}
	r.flags(cmd)
	return cmd
}
