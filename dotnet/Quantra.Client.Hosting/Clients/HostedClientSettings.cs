using Microsoft.Extensions.Configuration;
using Quantra.Client.Hosting.Configuration;

namespace Quantra.Client.Hosting.Clients;

/// <summary>What a section of a client may hold.</summary>
internal static class HostedClientSettings
{
    /// <summary>All settings.</summary>
    public static Settings<HostedClientOptions> All { get; } = new(
        new Dictionary<string, Action<HostedClientOptions, IConfigurationSection>>(StringComparer.OrdinalIgnoreCase)
        {
            [nameof(HostedClientOptions.Address)] = (options, from) => options.Address = SettingValue.Address(from),
            [nameof(HostedClientOptions.Server)] = (options, from) => options.Server = SettingValue.Text(from),
            [nameof(HostedClientOptions.Timeout)] = (options, from) => options.Timeout = SettingValue.Time(from),
            [nameof(HostedClientOptions.GraceTime)] = (options, from) => options.GraceTime = SettingValue.Time(from),
            [nameof(HostedClientOptions.MaxMessageBytes)] = (options, from) => options.MaxMessageBytes = SettingValue.Whole(from),
            [nameof(HostedClientOptions.MaxRequestBytes)] = (options, from) => options.MaxRequestBytes = SettingValue.Whole(from),
            [nameof(HostedClientOptions.MaxAttempts)] = (options, from) => options.MaxAttempts = SettingValue.Whole(from),
            [nameof(HostedClientOptions.ConnectTimeout)] = (options, from) => options.ConnectTimeout = SettingValue.Time(from),
            [nameof(HostedClientOptions.PingInterval)] = (options, from) => options.PingInterval = SettingValue.Time(from),
            [nameof(HostedClientOptions.PingTimeout)] = (options, from) => options.PingTimeout = SettingValue.Time(from),
            [nameof(HostedClientOptions.AuthorityFile)] = (options, from) => options.AuthorityFile = SettingValue.Text(from),
            [nameof(HostedClientOptions.Token)] = (options, from) => options.Token = SettingValue.Text(from),
        });
}
