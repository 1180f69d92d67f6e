package endpoints_test

import (
	"context"
	"fmt"
	"log"

	"go.temporal.io/sdk/client"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

func ExampleApply() {
	ctx := context.Background()
	temporal, err := client.Dial(client.Options{HostPort: "localhost:7233"})
	if err != nil {
		log.Fatal(err)
	}
	defer temporal.Close()

	specs, err := endpoints.ReadFile("endpoints.yaml")
	if err != nil {
		log.Fatal(err) // every mistake, with its line
	}
	for _, spec := range specs {
		result, err := endpoints.Apply(ctx, temporal.OperatorService(), spec, endpoints.Options{
			AcceptUnenforcedCallers: true, // this server enforces no allowedCallers
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result)
	}
}

func ExampleRender() {
	description := "Don't panic: `echo $HOME`"
	commands, err := endpoints.Render([]endpoints.Spec{{
		Name:            "tools",
		Description:     &description,
		TargetNamespace: "platform",
		TaskQueue:       "mcp",
	}}, endpoints.RenderOptions{Format: endpoints.TemporalCLI})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(commands)
	// Output:
	// temporal operator nexus endpoint create \
	//   --name=tools \
	//   --target-namespace=platform \
	//   --target-task-queue=mcp \
	//   --description='Don'\''t panic: `echo $HOME`'
}
