//! Compiles the protos, which `GATEPOST_PROTOS` names the folder of.
use std::{env, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = PathBuf::from(env::var("GATEPOST_PROTOS")?);
    println!("cargo::rerun-if-env-changed=GATEPOST_PROTOS");
    println!("cargo::rerun-if-changed={}", protos.display());
    let files = ["auth/v1/introspection.proto", "push/v1/delivery.proto", "push/v1/notifications.proto"];
    let descriptors = protox::compile(files, [&protos])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
