using Microsoft.Extensions.Configuration;
using Quantra.Client.Hosting.Configuration;

namespace Quantra.Client.Hosting.Clients;

/// <summary>Settings of a client in a configuration section.</summary>
internal static class HostedClientSettings
{
    public static OptionsReader<HostedClientOptions> Reader { get; } = new(
        new Dictionary<string, Action<HostedClientOptions, IConfigurationSection>>(StringComparer.OrdinalIgnoreCase)
        {
            [nameof(HostedClientOptions.Address)] = (options, setting) => options.Address = SettingValue.Address(setting),
            [nameof(HostedClientOptions.AdminAddress)] = (options, setting) => options.AdminAddress = SettingValue.Address(setting),
            [nameof(HostedClientOptions.Server)] = (options, setting) => options.Server = SettingValue.Text(setting),
            [nameof(HostedClientOptions.Timeout)] = (options, setting) => options.Timeout = SettingValue.Time(setting),
            [nameof(HostedClientOptions.GraceTime)] = (options, setting) => options.GraceTime = SettingValue.Time(setting),
            [nameof(HostedClientOptions.MaxMessageBytes)] = (options, setting) => options.MaxMessageBytes = SettingValue.Integer(setting),
            [nameof(HostedClientOptions.MaxRequestBytes)] = (options, setting) => options.MaxRequestBytes = SettingValue.Integer(setting),
            [nameof(HostedClientOptions.MaxAttempts)] = (options, setting) => options.MaxAttempts = SettingValue.Integer(setting),
            [nameof(HostedClientOptions.ConnectTimeout)] = (options, setting) => options.ConnectTimeout = SettingValue.Time(setting),
            [nameof(HostedClientOptions.PingInterval)] = (options, setting) => options.PingInterval = SettingValue.Time(setting),
            [nameof(HostedClientOptions.PingTimeout)] = (options, setting) => options.PingTimeout = SettingValue.Time(setting),
            [nameof(HostedClientOptions.AuthorityFile)] = (options, setting) => options.AuthorityFile = SettingValue.Text(setting),
            [nameof(HostedClientOptions.Token)] = (options, setting) => options.Token = SettingValue.Text(setting),
        });
}
