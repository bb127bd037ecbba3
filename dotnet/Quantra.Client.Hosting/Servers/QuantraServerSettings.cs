using Microsoft.Extensions.Configuration;
using Quantra.Client.Hosting.Configuration;

namespace Quantra.Client.Hosting.Servers;

/// <summary>What a section of a server may hold.</summary>
internal static class QuantraServerSettings
{
    /// <summary>All settings.</summary>
    public static Settings<QuantraServerOptions> All { get; } = new(
        new Dictionary<string, Action<QuantraServerOptions, IConfigurationSection>>(StringComparer.OrdinalIgnoreCase)
        {
            [nameof(QuantraServerOptions.Models)] = (options, from) => options.Models = SettingValue.Text(from),
            [nameof(QuantraServerOptions.PythonEnvironment)] = (options, from) => options.PythonEnvironment = SettingValue.Text(from),
            [nameof(QuantraServerOptions.Device)] = (options, from) => options.Device = SettingValue.Text(from),
            [nameof(QuantraServerOptions.Threads)] = (options, from) => options.Threads = SettingValue.Whole(from),
            [nameof(QuantraServerOptions.MaxBatchRows)] = (options, from) => options.MaxBatchRows = SettingValue.Whole(from),
            [nameof(QuantraServerOptions.Arguments)] = AddArguments,
            [nameof(QuantraServerOptions.Environment)] = AddVariables,
            [nameof(QuantraServerOptions.StartTimeout)] = (options, from) => options.StartTimeout = SettingValue.Time(from),
            [nameof(QuantraServerOptions.GraceTime)] = (options, from) => options.GraceTime = SettingValue.Time(from),
            [nameof(QuantraServerOptions.MaxRestarts)] = (options, from) => options.MaxRestarts = SettingValue.Whole(from),
            [nameof(QuantraServerOptions.RestartWindow)] = (options, from) => options.RestartWindow = SettingValue.Time(from),
            [nameof(QuantraServerOptions.RestartDelay)] = (options, from) => options.RestartDelay = SettingValue.Time(from),
            [nameof(QuantraServerOptions.MaxRestartDelay)] = (options, from) => options.MaxRestartDelay = SettingValue.Time(from),
            [nameof(QuantraServerOptions.ProbeInterval)] = (options, from) => options.ProbeInterval = SettingValue.Time(from),
            [nameof(QuantraServerOptions.ProbeTimeout)] = (options, from) => options.ProbeTimeout = SettingValue.Time(from),
            [nameof(QuantraServerOptions.MaxMissedProbes)] = (options, from) => options.MaxMissedProbes = SettingValue.Whole(from),
            [nameof(QuantraServerOptions.HostWaitsUntilReady)] = (options, from) => options.HostWaitsUntilReady = SettingValue.Flag(from),
        });

    private static void AddArguments(QuantraServerOptions options, IConfigurationSection from)
    {
        foreach (var one in SettingValue.Texts(from))
            options.Arguments.Add(one);
    }

    private static void AddVariables(QuantraServerOptions options, IConfigurationSection from)
    {
        foreach (var (name, value) in SettingValue.TextsByName(from))
            options.Environment[name] = value;
    }
}
