// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"mpbond/base/natstest"
	"mpbond/e2e/rig"
)

const kubernetesName = "packaging/fleet/kubernetes.yaml"

type metadata struct {
	Name, Namespace string
	Labels          map[string]string
}

// object is what this test needs of a Kubernetes object.
type object struct {
	Kind     string
	Metadata metadata
	Spec     yaml.Node
}

type statefulSet struct {
	ServiceName string `yaml:"serviceName"`
	Replicas    int
	Selector    struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	Template struct {
		Metadata metadata
		Spec     pod
	}
	VolumeClaimTemplates []struct{ Metadata metadata } `yaml:"volumeClaimTemplates"`
}

type pod struct {
	SecurityContext struct {
		RunAsUser           int    `yaml:"runAsUser"`
		RunAsGroup          int    `yaml:"runAsGroup"`
		FSGroup             int    `yaml:"fsGroup"`
		FSGroupChangePolicy string `yaml:"fsGroupChangePolicy"`
	} `yaml:"securityContext"`
	Containers []struct {
		Name, Image string
		Args        []string
		Env         []struct {
			Name, Value string
			ValueFrom   struct {
				FieldRef struct {
					FieldPath string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
				ConfigMapKeyRef struct{ Name, Key string } `yaml:"configMapKeyRef"`
			} `yaml:"valueFrom"`
		}
		Ports []struct {
			Name, Protocol string
			ContainerPort  int `yaml:"containerPort"`
			HostPort       int `yaml:"hostPort"`
		}
		ReadinessProbe struct {
			TCPSocket struct{ Port string } `yaml:"tcpSocket"`
		} `yaml:"readinessProbe"`
		SecurityContext struct {
			ReadOnlyRootFilesystem bool `yaml:"readOnlyRootFilesystem"`
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	Volumes []struct {
		Name   string
		Secret struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

// cluster has the objects of the Kubernetes file, whose pods are nodes of a network.
type cluster struct {
	*rig.Network
	hosts map[string]string
	set   statefulSet
	// data has the files of each Secret and ConfigMap by their keys.
	data map[string]map[string][]byte
	// volumes has a directory for each volume that is one of these.
	volumes map[string]string
}

// engineName is the name of the engine's service.
const engineName = "nats.nats.svc"

// readObjects returns the objects of the file by kind.
func readObjects(t *testing.T) map[string]*object {
	t.Helper()
	found := map[string]*object{}
	for d := yaml.NewDecoder(strings.NewReader(readFile(t, kubernetesName))); ; {
		o := &object{}
		if err := d.Decode(o); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if found[o.Kind] != nil {
			t.Fatalf("there are two objects of kind %s", o.Kind)
		}
		found[o.Kind] = o
		if o.Kind != "Namespace" && o.Metadata.Namespace != "mpbond" {
			t.Errorf("%s %s is in namespace %q", o.Kind, o.Metadata.Name, o.Metadata.Namespace)
		}
	}
}

// checkSelectors checks that the selectors find the pods of the set, and that the set has its service.
func checkSelectors(t *testing.T, objects map[string]*object, set statefulSet) {
	t.Helper()
	var service struct{ Selector map[string]string }
	var budget struct {
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
	}
	if err := errors.Join(objects["Service"].Spec.Decode(&service),
		objects["PodDisruptionBudget"].Spec.Decode(&budget)); err != nil {
		t.Fatal(err)
	}
	labels := set.Template.Metadata.Labels
	for what, selector := range map[string]map[string]string{"Service": service.Selector,
		"PodDisruptionBudget": budget.Selector.MatchLabels, "StatefulSet": set.Selector.MatchLabels} {
		if len(selector) == 0 || !maps.Equal(selector, labels) {
			t.Errorf("the %s selects %v, and the pods are %v", what, selector, labels)
		}
	}
	if set.ServiceName != objects["Service"].Metadata.Name {
		t.Errorf("the StatefulSet has the service %q", set.ServiceName)
	}
}

// container returns the container of a pod, as Kubernetes makes it of the template.
func (c *cluster) container(m image, name string) *container {
	c.Helper()
	p := c.set.Template.Spec
	k := p.Containers[0]
	variables := strings.NewReplacer() // $(NAME)
	var env, pairs []string
	for _, e := range k.Env {
		switch from := e.ValueFrom; {
		case from.FieldRef.FieldPath == "metadata.name":
			e.Value = name
		case from.ConfigMapKeyRef.Name != "":
			value, ok := c.data[from.ConfigMapKeyRef.Name][from.ConfigMapKeyRef.Key]
			if !ok {
				c.Fatalf("variable %s: there is no %v", e.Name, from.ConfigMapKeyRef)
			}
			e.Value = string(value)
		case e.Value == "":
			c.Fatalf("variable %s has no value", e.Name)
		}
		env, pairs = append(env, e.Name+"="+e.Value), append(pairs, "$("+e.Name+")", e.Value)
		variables = strings.NewReplacer(pairs...)
	}
	out := &container{image: m, node: name, env: env, volumes: map[string]string{}, restarts: true,
		hosts: []string{c.hosts["nats"] + " " + engineName}}
	out.user = fmt.Sprintf("%d:%d", p.SecurityContext.RunAsUser, p.SecurityContext.RunAsGroup)
	out.state = "" // an image's files do not get into a volume
	for _, a := range k.Args {
		out.command = append(out.command, variables.Replace(a))
	}
	for _, mount := range k.VolumeMounts {
		dir := c.volumes[mount.Name]
		for _, v := range c.set.VolumeClaimTemplates {
			if v.Metadata.Name == mount.Name {
				dir = c.claim()
			}
		}
		if dir == "" {
			c.Fatalf("the pod has no volume %q", mount.Name)
		}
		out.volumes[mount.MountPath] = dir
		if mount.ReadOnly {
			out.readOnly = append(out.readOnly, mount.MountPath)
		}
	}
	if k.SecurityContext.ReadOnlyRootFilesystem {
		out.readOnly = append(out.readOnly, "/")
	}
	return out
}

// claim makes a new persistent volume. Kubernetes gives its directory to the group fsGroup.
func (c *cluster) claim() string {
	dir := c.TempDir()
	if err := errors.Join(os.Chown(dir, 0, c.set.Template.Spec.SecurityContext.FSGroup),
		os.Chmod(dir, 0o775|os.ModeSetgid)); err != nil {
		c.Fatal(err)
	}
	return dir
}

// makeVolumes makes the volumes that are Secrets or ConfigMaps.
func (c *cluster) makeVolumes() {
	c.Helper()
	c.volumes = map[string]string{}
	for _, v := range c.set.Template.Spec.Volumes {
		dir := c.TempDir()
		c.volumes[v.Name] = dir
		mode := cmp.Or(os.FileMode(v.Secret.DefaultMode), 0o644)
		files := c.data[cmp.Or(v.Secret.SecretName, v.ConfigMap.Name)]
		if len(files) == 0 {
			c.Fatalf("volume %s is of nothing that the page makes", v.Name)
		}
		for name, data := range files {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chmod(path, mode),
				os.Chown(path, 0, c.set.Template.Spec.SecurityContext.FSGroup)); err != nil {
				c.Fatal(err)
			}
		}
	}
}

// makeUser makes a user of the engine as docs/howto/fleet.md says, and returns the file of credentials and the key.
func makeUser(t testing.TB, nk string) (creds []byte, key string) {
	t.Helper()
	creds, err := exec.Command(nk, "-gen", "user", "-pubout").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Fields(creds)
	return creds, string(lines[len(lines)-1])
}

// buildNK builds the program nk of NATS.
func buildNK(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nk")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/nats-io/nkeys/nk").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// fillUsers returns users.conf with the keys of the operator and of servers by name.
func fillUsers(t testing.TB, operator string, servers map[string]string) string {
	t.Helper()
	const operatorKey, serverKey = "UAREPLACE_BY_THE_KEY_OF_THE_OPERATOR", "UAREPLACE_BY_THE_KEY_OF_EU1"
	text := readFile(t, "packaging/fleet/users.conf")
	begin := strings.Index(text, "      {\n        nkey: \""+serverKey)
	end := strings.Index(text, "    ]\n  }\n}")
	if begin < 0 || end < begin || !strings.Contains(text, operatorKey) {
		t.Fatal("users.conf has no entries to copy")
	}
	var entries strings.Builder
	for name, key := range servers {
		entry := strings.ReplaceAll(text[begin:end], serverKey, key)
		entries.WriteString(strings.ReplaceAll(entry, "eu1", name))
	}
	return strings.ReplaceAll(text[:begin], operatorKey, operator) + entries.String() + text[end:]
}

// TestKubernetes runs the pods of the Kubernetes file without Kubernetes: processes with the arguments, variables,
// users and volumes of the template. Then a device joins and downloads.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	natstest.Program(t) // skips without one
	objects := readObjects(t)
	c := &cluster{}
	if objects["StatefulSet"] == nil || objects["Service"] == nil || objects["PodDisruptionBudget"] == nil {
		t.Fatalf("the file has only %v", slices.Collect(maps.Keys(objects)))
	}
	if err := objects["StatefulSet"].Spec.Decode(&c.set); err != nil {
		t.Fatal(err)
	}
	checkSelectors(t, objects, c.set)
	if strings.Contains(readFile(t, kubernetesName), "nats://") { // which would also connect without TLS
		t.Error("the servers may use the engine without TLS")
	}
	var pods []string
	spokes := []spoke{{node: "primary"}, {node: "operator"}, {node: "nats"}}
	for i := range c.set.Replicas {
		pods = append(pods, fmt.Sprintf("%s-%d", objects["StatefulSet"].Metadata.Name, i))
		spokes = append(spokes, spoke{node: pods[i]})
	}
	top, hosts := newStar(spokes...)
	addWeb(top)
	c.hosts = hosts
	c.Network = rig.New(t, rig.Options{Lab: top})

	nk, keys, users := buildNK(t), map[string]string{}, map[string][]byte{}
	for _, name := range pods {
		users[name], keys[name] = makeUser(t, nk)
	}
	creds := filepath.Join(t.TempDir(), "operator.creds")
	operator, operatorKey := makeUser(t, nk)
	if err := os.WriteFile(creds, operator, 0o600); err != nil {
		t.Fatal(err)
	}
	engine := natstest.Start(t, natstest.Options{Hosts: []string{hosts["nats"]}, Extra: fillUsers(t, operatorKey, keys),
		TLS: true, Names: []string{engineName},
		Command: func(_ int, argv ...string) *exec.Cmd { return c.Command("nats", argv...) }})
	var made struct{ Key string }
	if err := c.JSON(&made, "operator", "fleet", "init", "acme", "--json", "--fleet", engine.URLs(), "--creds", creds,
		"--fleet-ca", engine.CAFile); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(engine.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	c.data = map[string]map[string][]byte{"mpbond-creds": users,
		"mpbond-fleet": {"ca.crt": ca, "fleet-key": []byte(made.Key)}}
	c.makeVolumes()

	m := mpbondImage(t, c.Network)
	for _, name := range pods {
		p := c.StartCommand(name, c.container(m, name).prepare(c.Network))
		key := awaitKey(t, p)
		c.awaitReadiness(name)
		port := c.set.Template.Spec.Containers[0].Ports[0].HostPort
		c.Must("operator", c.Mpbond, "fleet", "add", name, "--key", key, "--addr",
			net.JoinHostPort(hosts[name], fmt.Sprint(port)), "--region", "eu")
	}
	rig.Eventually(t, func() error {
		out, err := c.Run("operator", c.Mpbond, "fleet", "status")
		if err == nil && strings.Count(out, " runs ") != len(pods) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	var inv struct{ Code string }
	if err := c.JSON(&inv, "operator", "fleet", "invite", "--json"); err != nil {
		t.Fatal(err)
	}
	useFleet(c.Network, inv.Code)
}

// awaitReadiness waits until the readiness probe of a pod succeeds.
func (c *cluster) awaitReadiness(name string) {
	c.Helper()
	k := c.set.Template.Spec.Containers[0]
	for _, p := range k.Ports {
		if p.ContainerPort != p.HostPort {
			c.Errorf("port %s is %d inside and %d outside", p.Name, p.ContainerPort, p.HostPort)
		}
		if p.Name == k.ReadinessProbe.TCPSocket.Port {
			rig.Eventually(c, func() error {
				_, err := c.Run("operator", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", c.hosts[name],
					p.ContainerPort))
				return err
			})
			return
		}
	}
	c.Errorf("the probe asks the port %q, which the container does not have", k.ReadinessProbe.TCPSocket.Port)
}
