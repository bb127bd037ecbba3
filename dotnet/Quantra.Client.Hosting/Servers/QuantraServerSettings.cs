using Microsoft.Extensions.Configuration;
using Quantra.Client.Hosting.Configuration;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Settings of a server in a configuration section.</summary>
internal static class QuantraServerSettings
{
    public static OptionsReader<QuantraServerOptions> Reader { get; } = new(
        new Dictionary<string, Action<QuantraServerOptions, IConfigurationSection>>(StringComparer.OrdinalIgnoreCase)
        {
            [nameof(QuantraServerOptions.Models)] = (options, setting) => options.Models = SettingValue.Text(setting),
            [nameof(QuantraServerOptions.PythonEnvironment)] = (options, setting) => options.PythonEnvironment = SettingValue.Text(setting),
            [nameof(QuantraServerOptions.Device)] = (options, setting) => options.Device = SettingValue.Text(setting),
            [nameof(QuantraServerOptions.Threads)] = (options, setting) => options.Threads = SettingValue.Integer(setting),
            [nameof(QuantraServerOptions.MaxBatchRows)] = (options, setting) => options.MaxBatchRows = SettingValue.Integer(setting),
            [nameof(QuantraServerOptions.Ledger)] = (options, setting) => options.Ledger = SettingValue.Text(setting),
            [nameof(QuantraServerOptions.AcceptsAdminCalls)] = (options, setting) => options.AcceptsAdminCalls = SettingValue.Flag(setting),
            [nameof(QuantraServerOptions.Arguments)] = AddArguments,
            [nameof(QuantraServerOptions.Environment)] = AddVariables,
            [nameof(QuantraServerOptions.StartTimeout)] = (options, setting) => options.StartTimeout = SettingValue.Time(setting),
            [nameof(QuantraServerOptions.GraceTime)] = (options, setting) => options.GraceTime = SettingValue.Time(setting),
            [nameof(QuantraServerOptions.MaxRestarts)] = (options, setting) => options.MaxRestarts = SettingValue.Integer(setting),
            [nameof(QuantraServerOptions.RestartWindow)] = (options, setting) => options.RestartWindow = SettingValue.Time(setting),
            [nameof(QuantraServerOptions.RestartDelay)] = (options, setting) => options.RestartDelay = SettingValue.Time(setting),
            [nameof(QuantraServerOptions.MaxRestartDelay)] = (options, setting) => options.MaxRestartDelay = SettingValue.Time(setting),
            [nameof(QuantraServerOptions.ProbeInterval)] = (options, setting) => options.ProbeInterval = SettingValue.Time(setting),
            [nameof(QuantraServerOptions.ProbeTimeout)] = (options, setting) => options.ProbeTimeout = SettingValue.Time(setting),
            [nameof(QuantraServerOptions.MaxMissedProbes)] = (options, setting) => options.MaxMissedProbes = SettingValue.Integer(setting),
            [nameof(QuantraServerOptions.HostWaitsUntilReady)] = (options, setting) => options.HostWaitsUntilReady = SettingValue.Flag(setting),
        });

    private static void AddArguments(QuantraServerOptions options, IConfigurationSection setting)
    {
        foreach (var value in SettingValue.Texts(setting))
            options.Arguments.Add(value);
    }

    private static void AddVariables(QuantraServerOptions options, IConfigurationSection setting)
    {
        foreach (var (name, value) in SettingValue.ReadTextsByName(setting))
            options.Environment[name] = value;
    }
}
